//! A client against a server of these tests, which has one session with two channels and checks what it is sent.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::thread::{JoinHandle, spawn};

use crate::crypto::{Key, Preauth, Signer, Signing};
use crate::frame::{Command, FLAGS_AT, Fields, Frame, HEADER, Header, RESPONSE, SIGNED, UNASKED};
use crate::ntlm::hmac_md5;
use crate::status::NtStatus;
use crate::unicode::utf16;
use crate::{Account, Client, Dialect, OpenKind, Protection, SmbError, Terms, nt_hash, spnego};

const ACCOUNT: Account<'_> = Account { user: "me", password: "secret" };
const SESSION: u64 = 7;
const MULTICHANNEL: u32 = 8;

/// The server's end of a channel.
struct Channel {
    stream: TcpStream,
    /// The last request.
    request: Vec<u8>,
}

impl Channel {
    fn accept(listener: &TcpListener) -> Self {
        Self { stream: listener.accept().unwrap().0, request: Vec::new() }
    }

    fn fields(&self) -> Fields<'_> {
        Fields(&self.request)
    }

    /// Receives a request of this kind, with this number.
    fn receive(&mut self, command: Command, number: u64) -> Fields<'_> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        self.request = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut self.request).unwrap();
        let fields = self.fields();
        assert_eq!((fields.command().unwrap(), fields.message().unwrap()), (command as u16, number));
        fields
    }

    /// Sends a message with the fields of a response to the last request.
    fn send(&mut self, (status, number): (NtStatus, u64), body: &[u8], signer: Option<&Signer>) {
        let mut frame = Frame::default();
        let command = Command::Negotiate;
        frame.begin(Header { command, charge: 1, credits: 64, message: number, tree: 5, session: SESSION });
        frame.0[12..14].copy_from_slice(&self.request[12..14]);
        frame.0[8..12].copy_from_slice(&status.0.to_le_bytes());
        frame.0[FLAGS_AT] = RESPONSE as u8;
        frame.bytes(body);
        if let Some(signer) = signer {
            signer.sign(&mut frame.0);
        }
        let length = (frame.0.len() as u32).to_be_bytes();
        self.stream.write_all(&[&length[..], &frame.0].concat()).unwrap();
    }

    fn respond(&mut self, status: NtStatus, body: &[u8], signer: Option<&Signer>) {
        let number = self.fields().message().unwrap();
        self.send((status, number), body, signer);
    }

    /// Negotiates; returns what the client is known by.
    fn negotiate(&mut self, capabilities: u32) -> [u8; 16] {
        let request = self.receive(Command::Negotiate, 0);
        assert_eq!((request.session().unwrap(), request.flags().unwrap()), (0, 0));
        assert_eq!(request.u32(HEADER + 8).unwrap() & MULTICHANNEL, MULTICHANNEL);
        let guid = request.bytes(HEADER + 12, 16).unwrap().try_into().unwrap();
        let mut body = Frame::default();
        body.u16(65).u16(1).u16(0x0302).u16(0).bytes(&[9; 16]).u32(capabilities);
        body.u32(1 << 20).u32(1 << 20).u32(1 << 20).bytes(&[0; 25]);
        self.respond(NtStatus::OK, &body.0, None);
        guid
    }

    /// Sends the challenge; returns the key of the client's answer.
    fn challenge(&mut self, signer: Option<&Signer>) -> Key {
        let challenge = [b"NTLMSSP\0\x02\0\0\0".as_slice(), &[0; 12], &[3; 8], &[0; 8]].concat();
        let challenge = [&challenge[..], &[4, 0, 4, 0, 56, 0, 0, 0], &[0; 12]].concat();
        let token = spnego::next(&challenge);
        let mut body = Frame::default();
        body.u16(9).u16(0).u16(HEADER as u16 + 8).u16(token.len() as u16).bytes(&token);
        self.respond(NtStatus::MORE_PROCESSING, &body.0, signer);
        self.receive(Command::SessionSetup, 2);
        let answer = spnego::token(&self.request[HEADER + 24..]).unwrap();
        let proof = &answer[Fields(answer).u32(24).unwrap() as usize..][..16];
        let key = hmac_md5(&nt_hash(ACCOUNT.password), &[&utf16("ME")]);
        hmac_md5(&key, &[proof])
    }
}

fn signer(key: &Key) -> Signer {
    Signer::new(Signing::AesCmac, &Dialect::V302.signing_key(key, &Preauth::default()))
}

/// How the server ends the binding of the second channel.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Bound,
    SignedWithSessionKey,
    Unsigned,
    Refused,
}

/// Begins the session on one channel, and binds another.
fn two_channels(listener: &TcpListener, end: End) -> [Channel; 2] {
    let mut first = Channel::accept(listener);
    let guid = first.negotiate(MULTICHANNEL);
    let setup = first.receive(Command::SessionSetup, 1);
    assert_eq!((setup.flags().unwrap(), setup.u8(HEADER + 2).unwrap()), (0, 0));
    let of_session = signer(&first.challenge(None));
    first.respond(NtStatus::OK, &[9, 0, 0, 0, 72, 0, 0, 0], Some(&of_session));
    let mut second = Channel::accept(listener);
    assert_eq!(second.negotiate(MULTICHANNEL), guid, "the server would see two clients");
    let binds = |second: &mut Channel| {
        let setup = second.fields();
        assert_eq!((setup.session().unwrap(), setup.tree().unwrap(), setup.flags().unwrap()), (SESSION, 0, SIGNED));
        let length = second.request.len() - HEADER - 24;
        // The structure's length, the flag that binds, signatures are possible; no capabilities, no channel; the token; no earlier session.
        let wanted = [25, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 88, 0, length as u8, (length >> 8) as u8];
        assert_eq!(second.request[HEADER..][..24], [&wanted[..], &[0; 8]].concat());
        assert!(of_session.verify(&mut second.request.clone()), "the session's key does not sign the binding");
    };
    second.receive(Command::SessionSetup, 1);
    binds(&mut second);
    let of_channel = signer(&second.challenge(Some(&of_session)));
    binds(&mut second);
    let (status, signer) = match end {
        End::Bound => (NtStatus::OK, Some(&of_channel)),
        End::SignedWithSessionKey => (NtStatus::OK, Some(&of_session)),
        End::Unsigned => (NtStatus::OK, None),
        End::Refused => (NtStatus::NOT_ACCEPTED, Some(&of_session)),
    };
    second.respond(status, &[9, 0, 0, 0, 72, 0, 0, 0], signer);
    [first, second]
}

/// Connects to a server, whose channels stay open until it is joined.
fn connect<T: Send + 'static>(
    server: impl FnOnce(TcpListener) -> T + Send + 'static,
) -> (Result<Client, SmbError>, JoinHandle<T>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
    let server = spawn(move || server(listener));
    let terms = Terms { dialect: Dialect::V302, protection: Protection::None, channels: 2 };
    (Client::connect(address, terms, ACCOUNT, "share"), server)
}

#[test]
fn a_session_has_two_channels_and_an_oplock_is_given_back_on_any() {
    let written =
        |channel: &mut Channel| channel.respond(NtStatus::OK, &[&[17, 0, 0, 0, 3][..], &[0; 11]].concat(), None);
    let (client, server) = connect(move |listener| {
        let [mut first, mut second] = two_channels(&listener, End::Bound);
        first.receive(Command::TreeConnect, 3);
        first.respond(NtStatus::OK, &[0; 16], None);
        first.receive(Command::Create, 4);
        first.respond(NtStatus::OK, &[0; 88], None);
        // Writes by turn.
        second.receive(Command::Write, 3);
        written(&mut second);
        first.receive(Command::Write, 5);
        // The server writes after the client has given its oplock back, for which it asks on the other channel.
        let oplock_break = [[24, 0, 0, 0, 0, 0, 0, 0], [6; 8], [6; 8]].concat();
        second.request[12] = Command::OplockBreak as u8;
        second.send((NtStatus::OK, UNASKED), &oplock_break, None);
        let given_back = second.receive(Command::OplockBreak, 4);
        assert_eq!(given_back.body().unwrap().0, oplock_break);
        second.respond(NtStatus::OK, &oplock_break, None);
        written(&mut first);
        second.receive(Command::Write, 5);
        written(&mut second);
        first.receive(Command::Close, 6);
        first.respond(NtStatus::OK, &[0; 60], None);
        [first, second]
    });
    let mut client = client.unwrap();
    let file = client.open("file", OpenKind::Look).unwrap().id;
    (0..3).for_each(|n| client.write(file, n, b"abc").unwrap());
    client.close(file).unwrap();
    server.join().unwrap();
}

#[test]
fn a_channel_that_is_not_bound_is_an_error_with_its_cause() {
    for (end, says) in [
        (
            End::Refused,
            "Channel 2 of 2 cannot be bound to the session: The server answers with NT_STATUS_REQUEST_NOT_ACCEPTED",
        ),
        (End::SignedWithSessionKey, "the server does not know the session's key"),
        (End::Unsigned, "the server does not know the session's key"),
    ] {
        let (client, server) = connect(move |listener| two_channels(&listener, end));
        let said = client.unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
        server.join().unwrap();
    }
}

#[test]
fn a_server_without_multichannel_is_refused() {
    let (client, server) = connect(|listener| Channel::accept(&listener).negotiate(!MULTICHANNEL));
    assert_eq!(client.unwrap_err().to_string(), "The server offers no multichannel");
    server.join().unwrap();
}
