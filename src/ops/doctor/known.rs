//! What is known of a setting, and what is not.

/// A setting: as it is, absent, or not to be told from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// It is this.
    Is(T),
    /// There is none.
    Absent,
    /// It cannot be told here, because.
    Untold(Untold),
}

/// Why something cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untold(pub String);

impl<T> Known<T> {
    pub fn untold(why: impl Into<String>) -> Self {
        Self::Untold(Untold(why.into()))
    }

    /// The setting, if there is one.
    pub fn told(&self) -> Result<Option<&T>, Untold> {
        match self {
            Self::Is(value) => Ok(Some(value)),
            Self::Absent => Ok(None),
            Self::Untold(why) => Err(why.clone()),
        }
    }

    /// The setting, where its being absent is no case of its own.
    pub fn is(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Absent | Self::Untold(_) => None,
        }
    }

    /// What follows from it, where there is something.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Known<U>) -> Known<U> {
        match self {
            Self::Is(value) => next(value),
            Self::Absent => Known::Absent,
            Self::Untold(why) => Known::Untold(why),
        }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        self.and_then(|value| Known::Is(change(value)))
    }

    /// What it is where nothing is said.
    pub fn or(self, default: T) -> Self {
        match self {
            Self::Absent => Self::Is(default),
            said => said,
        }
    }
}

impl<T> From<Option<T>> for Known<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Is)
    }
}

impl<T> From<Result<Option<T>, Untold>> for Known<T> {
    fn from(told: Result<Option<T>, Untold>) -> Self {
        told.map_or_else(Self::Untold, Self::from)
    }
}
