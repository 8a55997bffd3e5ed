"""The spelling of servers and addresses. References to secrets: tests/daemon/test_secrets.py."""

from __future__ import annotations

import time

import pytest

from craftcore.config.references import endpoint, is_host, is_loopback, is_one_line, mailbox


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ada@example.org", ("", "ada", "example.org")),
        (" ada@localhost ", ("", "ada", "localhost")),
        ("ada+notes/x=1@mail.example.org", ("", "ada+notes/x=1", "mail.example.org")),
        ("<ada@example.org>", ("", "ada", "example.org")),
        ("Ada Lovelace <ada@example.org>", ("Ada Lovelace", "ada", "example.org")),
        ("Ada<ada@example.org>", ("Ada", "ada", "example.org")),
        ('"Lovelace, Ada" <ada@example.org>', ("Lovelace, Ada", "ada", "example.org")),
        (r'"A \"B\" C" <ada@example.org>', ('A "B" C', "ada", "example.org")),
        ("Ада 👩‍💻 <ada@example.org>", ("Ада 👩‍💻", "ada", "example.org")),
        ("a" * 64 + "@" + "b" * 63 + "." + "c" * 63 + "." + "d" * 62, None),
        (
            "a" * 64 + "@" + "b" * 63 + "." + "c" * 63 + "." + "d" * 61,
            ("", "a" * 64, "b" * 63 + "." + "c" * 63 + "." + "d" * 61),
        ),
        ("a" * 65 + "@example.org", None),
        ("", None),
        ("ada", None),
        ("@example.org", None),
        ("ada@", None),
        ("ada@@example.org", None),
        ("ada@example..org", None),
        ("ada@-example.org", None),
        ("ada@example.org.", None),
        (".ada@example.org", None),
        ("a..b@example.org", None),
        ("a b@example.org", None),
        ('"a b"@example.org', None),
        ("ada@[127.0.0.1]", None),
        ("äda@example.org", None),
        ("ada@exämple.org", None),
        ("ada@example.org, bob@example.org", None),
        ("ada@example.org, Bob <bob@example.org>", None),
        ("ada@example.org <bob@example.org>", None),
        ("Ada <ada@example.org> Bob", None),
        ("Ada <ada@example.org", None),
        ("Ada <ada@example.org>>", None),
        ("ada@example.org\r\nBcc: bob@example.org", None),
        ("Ada\r\nBcc: bob@example.org\r\n <ada@example.org>", None),
        ("Ada\x85Bob <ada@example.org>", None),
        ("Ada\ud800 <ada@example.org>", None),
        ("ada@example.org> size=1", None),
        ("A" * 201 + " <ada@example.org>", None),
        (None, None),
        (["ada@example.org"], None),
    ],
)
def test_address_with_or_without_a_name_is_a_single_address(text, expected):
    assert mailbox(text) == expected


@pytest.mark.parametrize("text", ["a." * 400, '"' + "\\" * 799, "a@" + "b-" * 399, "-" * 400 + "<" * 400, " " * 800])
def test_text_of_any_length_is_refused_quickly(text):
    began = time.process_time()
    assert mailbox(text) is None
    assert time.process_time() - began < 1  # a pattern that backtracks would take minutes


@pytest.mark.parametrize("text", ["smtp.example.org", "localhost", "mail-1", "127.0.0.1", "::1", "2001:db8::1"])
def test_host_is_a_name_or_an_address(text):
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    ["", "a:25", "[::1]", "smtp://a", "a b", "a\n", "ä.example", "a..b", "-a", "a/b", "fe80::1%eth0", "me@a", "a" * 64],
)
def test_invalid_host_is_refused_with_the_reason(text):
    assert not is_host(text)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1"])
def test_local_host_is_recognised(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example", "127.0.0.1.example", "0.0.0.0", "192.168.0.7", "2130706433"])
def test_remote_host_is_not_taken_for_local(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "text", ["a\nb", "a\rb", "a\0b", "a\x0bb", "a\x85b", "a\u2028b", "a\u2029b", "a\ud800", "a\tb"]
)
def test_several_lines_are_distinguished_from_a_single_line(text):
    assert not is_one_line(text)
    assert is_one_line("Grüße 👩‍💻 – ok")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9464", ("", "127.0.0.1", 9464)),
        ("127.8.8.8:1", ("", "127.8.8.8", 1)),
        ("[::1]:65535", ("", "::1", 65535)),
        ("LocalHost:9464", ("", "127.0.0.1", 9464)),
        ("unix:metrics.sock", ("metrics.sock", "", 0)),
        ("unix:/run/craft core/m.sock", ("/run/craft core/m.sock", "", 0)),
        ("", None),
        ("9464", None),
        (":9464", None),
        ("0.0.0.0:9464", None),
        ("[::]:9464", None),
        ("[::ffff:10.0.0.1]:9464", None),
        ("192.168.0.7:9464", None),
        ("example.org:9464", None),
        ("localhost.example.org:9464", None),
        ("127.0.0.1", None),
        ("127.0.0.1:", None),
        ("127.0.0.1:0", None),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:+80", None),
        ("127.0.0.1: 80", None),
        ("127.0.0.1:٨٠", None),
        ("::1:9464", None),
        ("[127.0.0.1]:9464", None),
        ("[::1:9464", None),
        ("unix:", None),
        ("unix:/run/", None),
        ("unix:..", None),
        ("unix:a\0b", None),
        ("unix:a\nb", None),
        (9464, None),
        (None, None),
    ],
)
def test_endpoint_must_be_on_this_machine(text, expected):
    assert endpoint(text) == expected
