"""Clients that mean harm, by tlslite-ng: each prints what the server made of it. Arguments: port, host."""

import os
import socket
import sys

from tlslite.api import HandshakeSettings, TLSConnection
from tlslite.constants import AlertDescription, AlertLevel, CipherSuite, ContentType, KeyUpdateMessageType
from tlslite.errors import TLSAbruptCloseError, TLSRemoteAlert
from tlslite.messages import Alert, ApplicationData, ChangeCipherSpec, ClientHello, KeyUpdate, Message

PORT, HOST = int(sys.argv[1]), sys.argv[2]
REQUEST = f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
V12, V13 = (3, 3), (3, 4)


def connect(version, **more):
    settings = HandshakeSettings()
    settings.minVersion = settings.maxVersion = version
    for name, value in more.items():
        setattr(settings, name, value)
    plain = socket.create_connection(("127.0.0.1", PORT), 25)
    tls = TLSConnection(plain)
    tls.raw = plain
    tls.handshakeClientCert(settings=settings, serverName=HOST)
    return tls


def send(tls, *messages):
    for message in messages:
        for _ in tls._sendMsg(message, randomizeFirstBlock=False, update_hashes=False):
            pass


def reply(tls):
    tls.write(REQUEST)
    return tls.read(max=1000, min=12)[9:12].decode()


def key_updates_without_end():
    tls = connect(V13)
    for _ in range(200):
        send(tls, KeyUpdate().create(KeyUpdateMessageType.update_not_requested))
        tls._recordLayer.calcTLS1_3KeyUpdate_sender(tls.session.cipherSuite, tls.session.cl_app_secret, tls.session.sr_app_secret)
    return reply(tls)


def warnings_without_end():
    tls = connect(V12)
    send(tls, *(Alert().create(AlertDescription.user_canceled, AlertLevel.warning) for _ in range(50)))
    return reply(tls)


def empty_records():
    tls = connect(V13)
    for _ in range(5000):
        send(tls, ApplicationData().create(b""))
    return reply(tls)


def renegotiation():
    tls = connect(V12)
    again = ClientHello().create(V12, bytearray(32), bytearray(0), [CipherSuite.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256])
    send(tls, again)
    return reply(tls)


def heartbeat():
    tls = connect(V12)
    # It says that 16,384 bytes follow, and two do.
    send(tls, Message(ContentType.heartbeat, bytearray(b"\x01\x40\x00ab")))
    return reply(tls)


def change_of_ciphers_later():
    tls = connect(V13)
    send(tls, *(ChangeCipherSpec().create() for _ in range(20)))
    return reply(tls)


def record_too_long():
    tls = connect(V13, use_heartbeat_extension=False)
    tls._recordLayer.send_record_limit = tls._send_record_limit = 2**14 + 300
    tls.recordSize = 2**14 + 300
    send(tls, Message(ContentType.application_data, bytearray(2**14 + 200)))
    return reply(tls)


def record_that_was_changed():
    tls = connect(V13)
    tls.raw.sendall(b"\x17\x03\x03\x00\x40" + os.urandom(64))
    return reply(tls)


def handshake_in_the_clear_later():
    tls = connect(V13)
    tls.raw.sendall(b"\x16\x03\x03\x00\x04\x01\x00\x00\x00" * 3)
    return reply(tls)


def tls_10():
    return connect((3, 1)) and "let in"


def tls_11():
    return connect((3, 2)) and "let in"


def without_forward_secrecy():
    return connect(V12, keyExchangeNames=["rsa"]) and "let in"


def weak_ciphers():
    return connect(V12, cipherNames=["3des", "rc4", "aes128"], macNames=["sha"]) and "let in"


def chosen_padding():
    return connect(V12, cipherNames=["aes128", "aes256"]) and "let in"


def refused(script):
    try:
        return script()
    except TLSRemoteAlert as alert:
        return AlertDescription.toRepr(alert.description)
    except (TLSAbruptCloseError, ConnectionError):
        return "closed"


for script in (
    key_updates_without_end,
    warnings_without_end,
    empty_records,
    renegotiation,
    heartbeat,
    change_of_ciphers_later,
    record_too_long,
    record_that_was_changed,
    handshake_in_the_clear_later,
    tls_10,
    tls_11,
    without_forward_secrecy,
    weak_ciphers,
    chosen_padding,
):
    print(script.__name__, refused(script))
