"""Who is let in: TLS and certificates alone, without sockets. Both sides say why not."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import time
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from plexus.errors import PlexusError
from plexus.files import lock_directory
from plexus.live.identity import authority
from plexus.live.identity.admission import (
    CERTIFICATE_FILE,
    REVOKED_FILE,
    Admission,
    CertificateWatch,
    RefusedError,
)
from plexus.live.identity.authority import pem
from plexus.live.identity.keys import create_key, load_key
from plexus.live.operator.log import Log
from plexus.live.transport.tls import Tls
from tests.live.disks import damaged
from tests.live.party import Party, lax_context, self_signed


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


def meet(client: ssl.SSLContext, server: Admission) -> tuple[Tls, Tls, dict[str, str]]:
    """Let two sides shake hands; why each side gave up, if it did."""
    sides = {"client": Tls(client, False), "server": Tls(server.server_context, True)}
    reasons: dict[str, str] = {}
    for _ in range(6):
        for name, other in (("client", "server"), ("server", "client")):
            side = sides[name]
            try:
                if not side.ready:
                    side.handshake()
                elif name not in reasons:
                    side.read_into(memoryview(bytearray(100)))
            except RefusedError as error:
                reasons.setdefault(name, str(error))
            sides[other].feed(side.to_send())
    return sides["client"], sides["server"], reasons


def test_members_of_a_session_know_each_other(party: Party) -> None:
    a, b = party.admission("a"), party.admission("b")
    client, server, reasons = meet(a.client_context, b)
    assert reasons == {}
    assert a.admit(client.peer_certificate()).key == b.key
    assert b.admit(server.peer_certificate()).key == a.key


def test_a_foreign_session_is_refused(party: Party, tmp_path: Path) -> None:
    stranger = Party(tmp_path / "foreign").admission("x")
    _, server, reasons = meet(stranger.client_context, party.admission("a"))
    assert not server.ready
    assert reasons == {
        "client": "its certificate was not accepted: it is signed by another authority than this session's",
        "server": "it does not know the authority that signed our certificate",
    }


@pytest.mark.parametrize(
    ("credentials", "server_says", "client_hears"),
    [
        ("none", "it presented no certificate", "it requires a certificate and we presented none"),
        (
            "self-signed",
            "its certificate was not accepted: it is self-signed",
            "it does not know the authority that signed our certificate",
        ),
        (
            "expired",
            "its certificate was not accepted: certificate has expired",
            "it says our certificate has expired",
        ),
        (
            "early",
            "its certificate was not accepted: it is not valid yet, or one of our clocks is wrong",
            "it says our certificate is malformed, or one of our clocks is wrong",
        ),
    ],
)
def test_an_intruder_is_refused_and_both_sides_say_why(
    party: Party,
    tmp_path: Path,
    credentials: str,
    server_says: str,
    client_hears: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = party.admission("server")
    home: Path | None = None
    if credentials == "self-signed":
        home = self_signed(tmp_path / "self-signed")
    elif credentials == "expired":
        home = party.home("expired", valid=timedelta(seconds=-1))
    elif credentials == "early":
        monkeypatch.setattr(authority, "CLOCK_SKEW", timedelta(minutes=-10))
        home = party.home("early")
    _, side, reasons = meet(lax_context(home), server)
    assert not side.ready
    assert reasons == {"server": server_says, "client": client_hears}


def test_a_certificate_for_another_session_of_the_same_authority_is_refused(party: Party) -> None:
    server = party.admission("server")
    other = party.home("other", digest=b"another session!")
    _, side, _ = meet(lax_context(other), server)
    with pytest.raises(RefusedError, match=r"is for session 616e6f74.* this is"):
        server.admit(side.peer_certificate())


def test_a_revocation_takes_effect_on_those_already_linked(party: Party) -> None:
    a, b = party.admission("a"), party.admission("b")
    _, server, _ = meet(a.client_context, b)
    admitted = b.admit(server.peer_certificate())
    b.check_still(admitted)
    party.authority.revoke(a.key)
    assert b.adopt(b.read(party.revocations()))
    assert b.list.revoked_nodes == {a.key}
    with pytest.raises(RefusedError, match="revoked"):
        b.check_still(admitted)
    with pytest.raises(RefusedError, match="revoked"):
        b.admit(server.peer_certificate())
    assert meet(party.admission("c").client_context, b)[2] == {}, "others are still welcome"


def test_only_the_authority_revokes_and_only_newer_lists_count(party: Party, tmp_path: Path) -> None:
    a = party.admission("a")
    old = party.revocations()
    party.authority.revoke(party.admission("b").key)
    assert a.adopt(a.read(party.revocations()))
    assert not a.adopt(a.read(old))
    foreign = Party(tmp_path / "foreign")
    foreign.authority.revoke(foreign.admission("x").key)
    with pytest.raises(RefusedError, match="not a list by this authority"):
        a.adopt(a.read(foreign.revocations()))
    with pytest.raises(RefusedError, match="not a list by"):
        a.adopt(a.read(b"rubbish"))


def test_revocations_survive_a_restart_and_can_be_put_beside_the_certificate(party: Party) -> None:
    home = party.home("a")
    party.authority.revoke(party.admission("b").key)
    running = Admission(home, party.session)
    (home / REVOKED_FILE).write_text((party.directory / "session" / "revoked.crl").read_text())
    assert running.adopt(running.read_from_disk())
    assert not running.adopt(running.read_from_disk())
    assert Admission(home, party.session).list.number == running.list.number


def test_who_was_removed_is_told_that_it_may_be_invited_again(party: Party) -> None:
    a, b = party.admission("a"), party.admission("b")
    party.authority.revoke(a.key, for_good=False)
    party.authority.revoke(b.key)
    for each in (a, b):
        each.adopt(each.read(party.revocations()))
        assert each.is_revoked
    assert str(a.revoked()).endswith(
        "a/node.crt: the authority has removed this node, and may invite it again with the same key"
    )
    assert str(b.revoked()).endswith("b/node.crt: this certificate has been revoked")


def test_a_revoked_key_is_out_for_good_whatever_other_certificate_it_has(party: Party) -> None:
    """One that the authority issued elsewhere, or before it kept a record."""
    a = party.admission("a")
    [record] = (party.directory / "session" / "issued").iterdir()
    record.unlink()
    b = party.admission("b")
    public = load_key(party.directory / "a" / "node.key").public_key().public_bytes_raw()
    party.authority.invite(public, party.session.digest, timedelta(days=1))
    party.authority.revoke(a.key)
    assert b.adopt(b.read(party.revocations()))
    _, server, _ = meet(a.client_context, b)
    with pytest.raises(RefusedError, match="revoked"):
        b.admit(server.peer_certificate())
    with pytest.raises(PlexusError, match="has been revoked: its owner has to"):
        party.authority.invite(public, party.session.digest, timedelta(days=1))


def test_a_shorter_certificate_is_taken_over_only_if_the_longer_one_was_taken_back(party: Party) -> None:
    home = party.home("a", timedelta(days=30))
    admission = Admission(home, party.session)
    watch = CertificateWatch(admission, Log(said := StringIO()))

    def renewed(days: int) -> float:
        text = party.authority.renew(admission.key, party.session.digest, timedelta(days=days))
        (home / CERTIFICATE_FILE).write_text(text)
        admission.adopt(admission.read_from_disk())
        assert not watch.has_run_out()
        return round((admission.expires_s - time.time()) / 86400, 1)

    assert renewed(8) == 30
    assert renewed(9) == 30
    assert [json.loads(line)["event"] for line in said.getvalue().splitlines()] == [
        "shorter_certificate_ignored"
    ]
    party.authority.revoke(admission.key, for_good=False)
    assert renewed(10) == 10
    assert not admission.is_revoked
    assert renewed(40) == 40
    assert said.getvalue().count("certificate_renewed") == 2


def test_nobody_issues_a_certificate_while_those_of_a_node_are_taken_back(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, found = party.admission("a").key, authority.Authority._of

    def look(its: authority.Authority, node: bytes) -> list[x509.Certificate]:
        with pytest.raises(PlexusError, match="another command is using this session's authority"):
            its.invite(bytes(32), party.session.digest, timedelta(days=1))
        return found(its, node)

    monkeypatch.setattr(authority.Authority, "_of", look)
    assert party.authority.revoke(key, for_good=False) == 1


def test_a_list_names_all_who_were_ever_admitted_and_until_when(party: Party) -> None:
    soon, late = party.home("soon", valid=timedelta(seconds=-1)), party.home("late", valid=timedelta(days=9))
    publics = [load_key(home / "node.key").public_key().public_bytes_raw() for home in (soon, late)]
    party.authority.invite(publics[1], party.session.digest, timedelta(days=1))
    nodes = list(party.admission("a").list.nodes.values())
    assert [node.public for node in nodes[:2]] == publics
    ends = [node.until_s - time.time() for node in nodes]
    assert ends[0] < 0 < 8 * 86400 < ends[1]


def test_several_nodes_are_invited_at_once_with_one_list(party: Party) -> None:
    publics = [bytes([n]) * 32 for n in range(5)]
    before = party.admission("a").list.number
    texts = party.authority.invite_all(publics, party.session.digest, timedelta(days=1))
    lists = {text[text.index("-----BEGIN X509 CRL") :] for text in texts}
    assert len(lists) == 1
    assert party.admission("b").list.number == before + 2


def test_a_list_that_does_not_say_who_is_admitted_is_of_an_earlier_version(party: Party) -> None:
    home = party.home("a")
    text = (home / CERTIFICATE_FILE).read_text()
    (home / CERTIFICATE_FILE).write_text(text[: text.index("-----BEGIN X509 CRL")] + _older_list(party))
    with pytest.raises(PlexusError, match=r"earlier versions: invite again with `plexus session invite`"):
        Admission(home, party.session)


def test_certificates_of_somebody_elses_authority_are_one_line(party: Party) -> None:
    """As of a web server: keys of another kind, and the last one signed by itself."""
    home, key = party.home("a"), ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([]), datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    foreign = pem(builder.sign(key, hashes.SHA256()))
    (home / CERTIFICATE_FILE).write_text(
        2 * foreign + party.authority.directory.joinpath(REVOKED_FILE).read_text()
    )
    with pytest.raises(PlexusError, match=r"node.crt: a signature is not the authority's"):
        Admission(home, party.session)
    (party.authority.directory / "authority.crt").write_text(foreign)
    with pytest.raises(PlexusError, match=r"authority.crt: a signature is not the authority's"):
        authority.Authority.load(party.authority.directory)


def _older_list(party: Party) -> str:
    key = load_key(party.directory / "session" / "authority.key")
    now = datetime.now(UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(x509.Name([]))
        .last_update(now - timedelta(hours=1))
        .next_update(now + timedelta(hours=1))
        .add_extension(x509.CRLNumber(1), critical=False)
    )
    return pem(builder.sign(key, None))


def test_two_commands_do_not_make_lists_of_the_same_number(party: Party) -> None:
    lock = lock_directory(party.directory / "session")
    with pytest.raises(PlexusError, match="another command is using this session's authority"):
        party.home("a")
    os.close(lock)
    assert Admission(party.home("b"), party.session).list.number == 2


def test_tls_sessions_are_not_resumed(party: Party) -> None:
    """A ticket would let a revoked peer in."""
    server = party.admission("server")
    assert server.server_context.num_tickets == 0
    assert server.server_context.options & ssl.OP_NO_TICKET
    assert server.server_context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_a_nodes_own_credentials_are_checked_when_it_starts(
    party: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complaint(home: Path) -> str:
        with pytest.raises(PlexusError) as caught:
            Admission(home, party.session)
        return str(caught.value)

    assert "expired on" in complaint(party.home("late", valid=timedelta(seconds=-1)))
    assert "issued for session" in complaint(party.home("other", digest=b"another session!"))
    foreign = Party(tmp_path / "foreign").home("x")
    assert "signed by another authority" in complaint(foreign)
    swapped = party.home("swapped")
    (swapped / CERTIFICATE_FILE).write_text((foreign / CERTIFICATE_FILE).read_text())
    assert "not for the key" in complaint(swapped)
    readable = party.home("readable")
    (readable / "node.key").chmod(0o644)
    assert "others can read this private key" in complaint(readable)
    lost = party.home("lost")
    (lost / "node.key").unlink()
    create_key(lost / "node.key")
    assert "not for the key" in complaint(lost)
    monkeypatch.setattr(authority, "CLOCK_SKEW", timedelta(minutes=-10))
    early = complaint(party.home("early"))
    assert re.search(r"early/node.crt: begins on .* UTC, still to come: .* clock wrong\?$", early)


@pytest.mark.parametrize(
    "name",
    [
        "node.key",
        pytest.param("node.crt", marks=pytest.mark.slow),
        pytest.param("revoked.crl", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_every_flipped_bit_and_every_cut_of_a_credential_is_one_line_or_changes_nothing(
    name: str, party: Party
) -> None:
    """Nothing changes where the damage is in the white space of PEM, for instance."""
    home, path = party.home("a"), party.directory / "a" / name
    party.authority.revoke(party.admission("b").key)
    shutil.copy(party.directory / "session" / "revoked.crl", home)
    whole = path.read_bytes()

    def meaning() -> tuple[object, ...]:
        here = Admission(home, party.session)
        return here.key, here.expires_s, here.list.number, here.list.revoked_nodes

    right = meaning()
    for content in damaged(whole):
        path.write_bytes(content)
        try:
            found = meaning()
        except PlexusError as error:
            said = str(error)
            found = right if said.startswith(str(home)) and "\n" not in said else (said,)
        assert found == right, f"{name} as {content!r}"
