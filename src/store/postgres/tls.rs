//! TLS, by rustls with ring.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::Address;
use crate::error::{Error, ErrorKind};

/// What makes an encrypted connection of one: to a server whose certificate is for the host's name
/// and comes from a root that is trusted, and to no other.
pub(super) fn connector(address: &Address) -> Result<MakeRustlsConnect, Error> {
    let mut trusted = RootCertStore::empty();
    match &address.root {
        Some(path) => trust_file(&mut trusted, path)?,
        None if address.may_encrypt() => {
            // One that cannot be read is one that is not trusted.
            trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Config, "set up TLS").with_source(error))?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn trust_file(trusted: &mut RootCertStore, path: &Path) -> Result<(), Error> {
    let wrong = |why: String| {
        Error::new(ErrorKind::Config, "read sslrootcert")
            .with_detail(format!("{}: {why}", path.display()))
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|why| wrong(why.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|why| wrong(why.to_string()))?;
        trusted.add(certificate).map_err(|why| wrong(why.to_string()))?;
    }
    if trusted.is_empty() {
        return Err(wrong("it has no certificate".to_owned()));
    }
    Ok(())
}
