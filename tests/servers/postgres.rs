//! A Postgres server of one test: in a folder of its own, which ends with the test.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onlyonce::runtime::{Task, spawn};
use tokio_postgres::{Client, NoTls};

/// How long it may take to start on a busy machine.
const STARTING: Duration = Duration::from_secs(30);
/// Who owns the databases; by the socket it needs no password.
const OWNER: &str = "owner";

pub struct Postgres {
    folder: PathBuf,
    settings: Vec<String>,
    process: Option<Child>,
    port: u16,
}

impl Postgres {
    /// One that is quick, and forgets when the machine goes down.
    #[allow(dead_code, reason = "not for who pulls its plug")]
    pub fn start() -> Self {
        Self::with(&["fsync=off", "listen_addresses="])
    }

    /// One that keeps what it has confirmed, as in production.
    #[allow(dead_code, reason = "not every test pulls its plug")]
    pub fn durable() -> Self {
        Self::with(&["listen_addresses="])
    }

    /// One with these settings; it listens at `port()` unless told otherwise.
    pub fn with(settings: &[&str]) -> Self {
        let name = format!("pg-{:016x}", fastrand::Rng::new().u64(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self { folder, settings, process: None, port: free_port() };
        match option_env!("CARGO_TARGET_TMPDIR") {
            Some(kept) => {
                run(Command::new("cp").arg("-a").arg(template(kept)).arg(server.data()));
                give(&server.folder, false);
            }
            // An example, which has no such place.
            None => initdb(&server.folder),
        }
        server.start_again();
        server
    }

    /// Starts it on its folder, when it is down.
    #[allow(clippy::disallowed_methods, reason = "it starts in the machine's time")]
    pub fn start_again(&mut self) {
        let begun = Instant::now();
        // What is left of one that was killed goes away by itself, soon.
        while !self.try_start(begun) {
            assert!(begun.elapsed() < STARTING, "postgres did not start: see {:?}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[allow(clippy::disallowed_methods, reason = "it starts in the machine's time")]
    fn try_start(&mut self, begun: Instant) -> bool {
        let log = self.folder.join("log");
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = as_server(&program("postgres"), true);
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.folder);
        command.arg("-p").arg(self.port.to_string());
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        command.stdout(Stdio::null()).stderr(log);
        let process = self.process.insert(command.spawn().unwrap());
        let state = self.folder.join("data/postmaster.pid");
        let mine = process.id().to_string();
        while begun.elapsed() < STARTING && process.try_wait().unwrap().is_none() {
            let shown = std::fs::read_to_string(&state).unwrap_or_default();
            let is_ready = shown.lines().nth(7).is_some_and(|line| line.trim() == "ready");
            if is_ready && shown.lines().next() == Some(&mine) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// As by a power cut: nothing is finished, nothing is written down, nobody is told.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Its own processes included, which a plain kill would leave to find out by themselves.
            let _ = Command::new("kill").arg("-QUIT").arg(process.id().to_string()).status();
            let _ = process.wait();
        }
    }

    /// The database `postgres`, by the socket, as the owner.
    pub fn url(&self) -> String {
        self.url_as(OWNER)
    }

    /// The same as another role.
    pub fn url_as(&self, role: &str) -> String {
        format!("postgres://{role}@/postgres?host={}&port={}", self.folder.display(), self.port)
    }

    #[allow(dead_code, reason = "not every test goes by TCP")]
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The database as another program sees it.
    #[allow(dead_code, reason = "not every test looks at the rows")]
    pub async fn foreign(&self) -> Foreign {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        let serving = spawn(async move { drop(connection.await) });
        Foreign { client, _serving: serving }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A connection that is not the store's.
#[allow(dead_code, reason = "not every test looks at the rows")]
pub struct Foreign {
    client: Client,
    _serving: Task<()>,
}

impl Deref for Foreign {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Foreign {
    /// The one number that `sql` answers, if there is one.
    #[allow(dead_code, reason = "not every test looks at the rows")]
    pub async fn number(&self, sql: &str) -> Option<i64> {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }
}

fn free_port() -> u16 {
    let free = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// A folder as `initdb` makes it, which takes a second: made once for all tests.
fn template(kept: &str) -> PathBuf {
    let version = Command::new(program("postgres")).arg("--version").output().unwrap();
    // postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
    let version = String::from_utf8(version.stdout).unwrap();
    let version = version.split_whitespace().nth(2).unwrap();
    let made = PathBuf::from(kept)
        .join(format!("postgres-{version}-{}", if is_root() { "root" } else { "user" }));
    if made.exists() {
        return made;
    }
    let name = format!("pg-{:016x}", fastrand::Rng::new().u64(..));
    let folder = std::env::temp_dir().join(&name);
    std::fs::create_dir(&folder).unwrap();
    initdb(&folder);
    // Others make it at the same time: whichever comes first stays, whole.
    let beside = made.with_file_name(&name);
    run(Command::new("cp").arg("-a").arg(folder.join("data")).arg(&beside));
    if std::fs::rename(&beside, &made).is_err() {
        let _ = std::fs::remove_dir_all(&beside);
    }
    let _ = std::fs::remove_dir_all(&folder);
    made
}

fn initdb(folder: &Path) {
    give(folder, false);
    let mut initdb = as_server(&program("initdb"), false);
    initdb.arg("-D").arg(folder.join("data"));
    initdb.args(["-U", OWNER, "--encoding=UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"]);
    initdb.args(["--auth-local=trust", "--auth-host=scram-sha-256"]);
    initdb.current_dir(folder).stdout(Stdio::null());
    run(&mut initdb);
}

/// A command that runs as who may run a server, which root may not, and with `ends` goes when the
/// thread that has started it goes.
fn as_server(program: &Path, ends: bool) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    if ends {
        command.arg("--pdeathsig=QUIT");
    }
    command.arg(program);
    command
}

/// Gives a file or folder to who runs the server.
pub fn give(path: &Path, is_secret: bool) {
    if is_root() {
        run(Command::new("chown").arg("-R").arg("postgres:postgres").arg(path));
    }
    if is_secret {
        run(Command::new("chmod").arg("600").arg(path));
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

fn run(command: &mut Command) {
    let status = command.status().expect("it is there");
    assert!(status.success(), "{command:?}: {status}");
}

/// The newest that is installed.
fn program(name: &str) -> PathBuf {
    let folder = Path::new("/usr/lib/postgresql");
    let versions = std::fs::read_dir(folder).expect("PostgreSQL: `make tools` installs it");
    let version = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        let number: u32 = name.to_str()?.parse().ok()?;
        Some(number)
    };
    let newest = versions.filter_map(version).max().expect("PostgreSQL: `make tools` installs it");
    folder.join(format!("{newest}/bin/{name}"))
}
