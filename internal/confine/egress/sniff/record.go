// Package sniff reads what a connection says of where it wants to go: the server name of a TLS
// handshake, the host of an HTTP request. It is strict: what two readers could take in two ways is
// refused. The bytes that were read come back, to be sent on as they are.
package sniff

import (
	"errors"
	"io"
)

// Types of TLS records (RFC 8446, 5.1).
const (
	recordChangeCipherSpec = 20
	recordAlert            = 21
	recordHandshake        = 22
	recordApplicationData  = 23
)

// RecordHandshake is the first byte of every TLS connection.
const RecordHandshake = recordHandshake

const (
	recordHeader = 5
	maxRecord    = 1<<14 + 256 // of an encrypted one (RFC 8446, 5.2)
	maxPlain     = 1 << 14
)

var (
	errNotTLS    = errors.New("not TLS")
	errMalformed = errors.New("malformed TLS handshake")
	errTooLong   = errors.New("TLS handshake is too long")
)

// readRecord reads one TLS record.
func readRecord(r io.Reader) (kind byte, raw []byte, err error) {
	var header [recordHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	kind = header[0]
	if kind < recordChangeCipherSpec || kind > recordApplicationData || header[1] != 3 {
		return 0, nil, errNotTLS
	}
	n := int(header[3])<<8 | int(header[4])
	most := maxPlain
	if kind == recordApplicationData {
		most = maxRecord
	}
	if n == 0 || n > most {
		return 0, nil, errMalformed
	}
	raw = make([]byte, recordHeader+n)
	copy(raw, header[:])
	_, err = io.ReadFull(r, raw[recordHeader:])
	return kind, raw, err
}

// Types of handshake messages (RFC 8446, 4).
const (
	messageClientHello = 1
	messageServerHello = 2
)

const messageHeader = 4

// maxHello bounds a ClientHello. Those of browsers with post-quantum keys have 2 kB.
const maxHello = 1 << 15

// maxHelloRecords bounds the records of a ClientHello: a byte of it may have a record of its own.
const maxHelloRecords = 2 * maxHello

// readMessage collects the handshake records of one message, whose first is given, and returns its
// body. enough bounds how much of the body is waited for; 0: all of it, and nothing behind it.
func readMessage(r io.Reader, first []byte, kind byte, enough int) (body, raw []byte, err error) {
	raw = first
	message := append([]byte(nil), first[recordHeader:]...)
	for {
		body, err := bodyOf(message, kind, enough)
		if body != nil || err != nil {
			return body, raw, err
		}
		recordKind, next, err := readRecord(r)
		if err != nil {
			return nil, raw, err
		}
		raw = append(raw, next...)
		if recordKind != recordHandshake {
			return nil, raw, errMalformed
		}
		if len(raw) > maxHelloRecords {
			return nil, raw, errTooLong
		}
		message = append(message, next[recordHeader:]...)
	}
}

// bodyOf returns what readMessage waits for, nil as long as it is not there.
func bodyOf(message []byte, kind byte, enough int) ([]byte, error) {
	if message[0] != kind {
		return nil, errMalformed
	}
	if len(message) < messageHeader {
		return nil, nil
	}
	n := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
	body := message[messageHeader:]
	switch {
	case enough > 0 && n < enough, n == 0:
		return nil, errMalformed
	case enough > 0 && len(body) >= enough:
		return body[:enough], nil
	case enough > 0:
		return nil, nil
	case n > maxHello:
		return nil, errTooLong
	case len(body) > n:
		return nil, errMalformed
	case len(body) == n:
		return body, nil
	}
	return nil, nil
}
