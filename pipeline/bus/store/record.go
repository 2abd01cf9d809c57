// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A Message is one entry of the store. Its Number is unique within its subject.
type Message struct {
	Subject string // at most MaxSubject bytes
	Number
	Data []byte // at most MaxData bytes
}

// A Number identifies a message of a subject. Sequence starts at 1 in each epoch; a gap means that messages were lost.
// Epoch counts the epochs of an ID from 1: a new one starts if the last numbers of the previous one are unknown. ID
// identifies the publisher; a new one is chosen if the epoch is unknown too.
type Number struct {
	ID              uint64
	Epoch, Sequence uint64
}

// Limits of a message, in bytes.
const (
	MaxSubject = 1 << 10
	MaxData    = 8 << 20
)

// A record is, in little-endian order: the length of everything after the CRC (4 bytes), the CRC-32C of that length and
// of everything after the CRC (4), ID, epoch and sequence (8 each), the length of the subject (2), the subject, and the
// data. recordHead is the size of the length and the CRC, bodyHead that of the following fields before the subject.
const (
	recordHead = 8
	bodyHead   = 26
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of parse; errLimits is one of Append.
var (
	errCut     = errors.New("the record is cut off")
	errDamaged = errors.New("the record is damaged")
	errLimits  = errors.New("store: the message is too long")
)

func size(m *Message) int64 { return int64(recordHead + bodyHead + len(m.Subject) + len(m.Data)) }

// appendRecord appends the record of a message, which must be within the limits.
func appendRecord(b []byte, m *Message) []byte {
	begin := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(size(m)-recordHead))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = binary.LittleEndian.AppendUint64(b, m.Epoch)
	b = binary.LittleEndian.AppendUint64(b, m.Sequence)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Subject)))
	b = append(append(b, m.Subject...), m.Data...)
	binary.LittleEndian.PutUint32(b[begin+4:], checksum(b[begin:]))
	return b
}

// checksum returns the CRC of a whole record, which does not cover the CRC itself.
func checksum(record []byte) uint32 {
	return crc32.Update(crc32.Checksum(record[:4], castagnoli), castagnoli, record[recordHead:])
}

// length returns the length in bytes of the record at the beginning of b, or the errors of parse.
func length(b []byte) (int, error) {
	if len(b) < recordHead {
		return 0, errCut
	}
	n := binary.LittleEndian.Uint32(b)
	if n < bodyHead || n > bodyHead+MaxSubject+MaxData {
		return 0, errDamaged
	}
	return recordHead + int(n), nil
}

// parse parses the record at the beginning of b and returns its length. The message's data share b's memory. The error
// is errCut if b holds only part of the record, whose length is then returned too if it is known; or errDamaged if the
// record is invalid.
func parse(b []byte) (m Message, n int, err error) {
	if n, err = length(b); err != nil {
		return m, 0, err
	}
	if len(b) < n {
		return m, n, errCut
	}
	record := b[:n:n]
	if binary.LittleEndian.Uint32(record[4:]) != checksum(record) {
		return m, 0, errDamaged
	}
	body := record[recordHead:]
	subject := int(binary.LittleEndian.Uint16(body[24:]))
	if subject > MaxSubject || bodyHead+subject > len(body) || len(body)-bodyHead-subject > MaxData {
		return m, 0, errDamaged
	}
	m.ID, m.Epoch = binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:])
	m.Sequence = binary.LittleEndian.Uint64(body[16:])
	m.Subject, m.Data = string(body[bodyHead:bodyHead+subject]), body[bodyHead+subject:]
	return m, n, nil
}
