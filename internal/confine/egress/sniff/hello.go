package sniff

import (
	"encoding/binary"
	"errors"
	"io"
)

// Extensions of a ClientHello (IANA, TLS ExtensionType Values).
const (
	extensionServerName    = 0
	extensionESNI          = 0xffce // of the drafts before encrypted_client_hello
	extensionECH           = 0xfe0d
	extensionECHOuter      = 0xfd00
	nameTypeHost           = 0
	helloFixed             = 2 + 32 // version and random
	maxSessionID           = 32
	supportedHelloMajor    = 3
	extensionHeader        = 4
	serverNameEntryHeader  = 3
	serverNameListOverhead = 2
)

var errEncrypted = errors.New("encrypted ClientHello: the server name cannot be checked")

// ReadClientHello reads the records of a ClientHello, the first message of a TLS connection, and
// returns its server name as it stands there; it is empty where there is none.
func ReadClientHello(r io.Reader) (name string, raw []byte, err error) {
	kind, first, err := readRecord(r)
	if err != nil {
		return "", nil, err
	}
	if kind != recordHandshake {
		return "", first, errNotTLS
	}
	return readHello(r, first)
}

func readHello(r io.Reader, first []byte) (name string, raw []byte, err error) {
	body, raw, err := readMessage(r, first, messageClientHello, 0)
	if err != nil {
		return "", raw, err
	}
	name, err = parseHello(body)
	return name, raw, err
}

// maxEarlyData bounds what a client sends between two hellos, twice what OpenSSL's servers take. A
// server that asks for a second one skips it.
const maxEarlyData = 1 << 15

// ReadSecondHello reads the ClientHello that a HelloRetryRequest has asked for, and what the
// client had sent meanwhile.
func ReadSecondHello(r io.Reader) (name string, raw []byte, err error) {
	for {
		kind, record, err := readRecord(r)
		if err != nil {
			return "", raw, err
		}
		switch kind {
		case recordHandshake:
			name, hello, err := readHello(r, record)
			return name, append(raw, hello...), err
		case recordAlert:
			return "", append(raw, record...), errMalformed
		}
		if raw = append(raw, record...); len(raw) > maxEarlyData {
			return "", raw, errTooLong
		}
	}
}

// field cuts a vector from b: its length in size bytes, then that many.
func field(b []byte, size int) (value, rest []byte, ok bool) {
	if len(b) < size {
		return nil, nil, false
	}
	n := 0
	for _, c := range b[:size] {
		n = n<<8 | int(c)
	}
	if len(b) < size+n {
		return nil, nil, false
	}
	return b[size : size+n], b[size+n:], true
}

// parseHello reads the body of a ClientHello (RFC 8446, 4.1.2).
func parseHello(b []byte) (name string, err error) {
	if len(b) < helloFixed || b[0] != supportedHelloMajor {
		return "", errMalformed
	}
	session, b, ok := field(b[helloFixed:], 1)
	if !ok || len(session) > maxSessionID {
		return "", errMalformed
	}
	ciphers, b, ok := field(b, 2)
	if !ok || len(ciphers) < 2 || len(ciphers)%2 != 0 {
		return "", errMalformed
	}
	compressions, b, ok := field(b, 1)
	if !ok || len(compressions) == 0 {
		return "", errMalformed
	}
	if len(b) == 0 { // a hello without extensions
		return "", nil
	}
	extensions, rest, ok := field(b, 2)
	if !ok || len(rest) > 0 {
		return "", errMalformed
	}
	return parseExtensions(extensions)
}

func parseExtensions(b []byte) (name string, err error) {
	seen := map[uint16]bool{}
	for len(b) > 0 {
		if len(b) < extensionHeader {
			return "", errMalformed
		}
		kind := binary.BigEndian.Uint16(b)
		value, rest, ok := field(b[2:], 2)
		if !ok || seen[kind] {
			return "", errMalformed
		}
		seen[kind], b = true, rest
		switch kind {
		case extensionECH, extensionESNI, extensionECHOuter:
			return "", errEncrypted
		case extensionServerName:
			if name, err = parseServerName(value); err != nil {
				return "", err
			}
		}
	}
	return name, nil
}

// parseServerName reads the one host name of a server_name extension (RFC 6066, 3).
func parseServerName(b []byte) (string, error) {
	list, rest, ok := field(b, serverNameListOverhead)
	if !ok || len(rest) > 0 || len(list) < serverNameEntryHeader || list[0] != nameTypeHost {
		return "", errMalformed
	}
	name, rest, ok := field(list[1:], 2)
	if !ok || len(rest) > 0 || len(name) == 0 {
		return "", errMalformed
	}
	return string(name), nil
}

// retryRandom is the random of a ServerHello that is a HelloRetryRequest (RFC 8446, 4.1.3).
var retryRandom = [32]byte{
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
	0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
}

// ReadServerHello reads as much of a server's answer as tells whether it asks for a second
// ClientHello. An alert does not, unless it is a warning, behind which the answer comes.
func ReadServerHello(r io.Reader) (retry bool, raw []byte, err error) {
	for {
		kind, record, err := readRecord(r)
		if err != nil {
			return false, raw, err
		}
		switch {
		case kind == recordHandshake:
			body, answer, err := readMessage(r, record, messageServerHello, helloFixed)
			raw = append(raw, answer...)
			return err == nil && [32]byte(body[2:]) == retryRandom, raw, err
		case kind != recordAlert:
			return false, append(raw, record...), errNotTLS
		}
		if raw = append(raw, record...); record[recordHeader] != alertWarning {
			return false, raw, nil
		}
		if len(raw) > maxWarnings {
			return false, raw, errTooLong
		}
	}
}

const (
	alertWarning = 1 // AlertLevel of RFC 8446, 6
	maxWarnings  = 1024
)
