// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
)

// A diskCache is a disk with a volatile write cache, like most disks: written data stay in memory until the guest
// flushes the disk, or writes with FUA. When the connection ends, as in a power cut, a random part of the unflushed
// data reaches the disk and the rest is lost, for each physical sector separately, regardless of the order and the
// bounds of writes.
// Physical sectors are never torn: ext4 has its superblock of 1 KiB, with a checksum, in one, and cannot mount with half
// of it. A diskCache serves QEMU by NBD, one request after the other.
type diskCache struct {
	file    *os.File
	size    int64
	sectors map[int64][]byte // sectors that are not on the disk yet, by their offset on it in bytes
	lost    int              // number of lost sectors; read only after ended is closed
	kept    int              // number of unflushed sectors that reached the disk in the power cut; read like lost
	ended   chan struct{}
}

const (
	sectorSize   = 512      // the unit of requests
	physicalSize = 4 << 10  // bytes that reach the disk together
	maxRequest   = 32 << 20 // bytes, as in QEMU
)

// Constants of NBD (https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md).
const (
	nbdMagic       = 0x4e42444d41474943
	nbdHaveOptions = 0x49484156454f5054
	nbdOptionReply = 0x3e889045565a9
	nbdRequest     = 0x25609513
	nbdReply       = 0x67446698

	nbdOptAbort    = 2
	nbdOptGo       = 7
	nbdRepAck      = 1
	nbdRepInfo     = 3
	nbdUnsupported = 1<<31 | 1

	nbdHandshake = 1 | 2     // fixed new style, no zeroes
	nbdFeatures  = 1 | 4 | 8 // of the disk: flags, flush, FUA

	nbdRead       = 0
	nbdWrite      = 1
	nbdDisconnect = 2
	nbdFlush      = 3
	nbdFUA        = 1
	nbdEIO        = 5
	nbdEINVAL     = 22
)

func newDiskCache(f *os.File) (*diskCache, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &diskCache{file: f, size: info.Size(), sectors: map[int64][]byte{}, ended: make(chan struct{})}, nil
}

// serve handles requests until the connection ends, and then treats the unflushed data as a power cut does. It closes
// the connection and the file.
func (d *diskCache) serve(conn net.Conn) {
	defer close(d.ended)
	defer d.file.Close()
	defer conn.Close()
	rw := bufio.NewReadWriter(bufio.NewReaderSize(conn, 1<<20), bufio.NewWriterSize(conn, 1<<20))
	err := d.negotiate(rw)
	for err == nil {
		if err = d.request(rw); err == nil {
			err = rw.Flush()
		}
	}
	share, reaches := rand.Float64(), map[int64]bool{} // by physical sector
	for at, sector := range d.sectors {
		physical := at / physicalSize
		if _, drawn := reaches[physical]; !drawn {
			reaches[physical] = rand.Float64() < share
		}
		if !reaches[physical] {
			d.lost++
		} else if _, err := d.file.WriteAt(sector, at); err == nil {
			d.kept++
		}
	}
}

func writeFields(w io.Writer, fields ...any) error {
	for _, f := range fields {
		if err := binary.Write(w, binary.BigEndian, f); err != nil {
			return err
		}
	}
	return nil
}

// negotiate answers the client's options until the client requests the disk.
func (d *diskCache) negotiate(rw *bufio.ReadWriter) error {
	var flags uint32
	err := errors.Join(writeFields(rw, uint64(nbdMagic), uint64(nbdHaveOptions), uint16(nbdHandshake)), rw.Flush(), binary.Read(rw, binary.BigEndian, &flags))
	for err == nil {
		var option struct {
			Magic        uint64
			Kind, Length uint32
		}
		if err := binary.Read(rw, binary.BigEndian, &option); err != nil {
			return err
		}
		if option.Magic != nbdHaveOptions || option.Length > maxRequest || option.Kind == nbdOptAbort {
			return fmt.Errorf("vjetson: disk: no option of NBD: %+v", option)
		}
		if _, err := rw.Discard(int(option.Length)); err != nil {
			return err
		}
		if option.Kind == nbdOptGo {
			return errors.Join(writeFields(rw, uint64(nbdOptionReply), option.Kind, uint32(nbdRepInfo), uint32(12), uint16(0), d.size, uint16(nbdFeatures)),
				writeFields(rw, uint64(nbdOptionReply), option.Kind, uint32(nbdRepAck), uint32(0)), rw.Flush())
		}
		err = errors.Join(writeFields(rw, uint64(nbdOptionReply), option.Kind, uint32(nbdUnsupported), uint32(0)), rw.Flush())
	}
	return err
}

// request handles one request. It returns io.EOF when the client disconnects or breaks the protocol, or an error of the
// connection.
func (d *diskCache) request(rw *bufio.ReadWriter) error {
	var q struct {
		Magic       uint32
		Flags, Kind uint16
		Handle      uint64
		At          int64
		Length      uint32
	}
	if err := binary.Read(rw, binary.BigEndian, &q); err != nil {
		return err
	}
	if q.Magic != nbdRequest || q.Length > maxRequest || q.Kind == nbdDisconnect {
		return io.EOF
	}
	var data []byte
	var err error
	aligned := q.At >= 0 && q.At%sectorSize == 0 && q.Length%sectorSize == 0 && q.At+int64(q.Length) <= d.size
	switch {
	case q.Kind == nbdWrite:
		b := make([]byte, q.Length)
		if _, err := io.ReadFull(rw, b); err != nil {
			return err
		}
		if !aligned {
			return writeFields(rw, uint32(nbdReply), uint32(nbdEINVAL), q.Handle)
		}
		err = d.write(b, q.At, q.Flags&nbdFUA != 0)
	case q.Kind == nbdRead && aligned:
		data = make([]byte, q.Length)
		err = d.read(data, q.At)
	case q.Kind == nbdFlush:
		err = d.flush()
	default:
		return writeFields(rw, uint32(nbdReply), uint32(nbdEINVAL), q.Handle)
	}
	if err != nil {
		return writeFields(rw, uint32(nbdReply), uint32(nbdEIO), q.Handle)
	}
	return writeFields(rw, uint32(nbdReply), uint32(0), q.Handle, data)
}

// write puts sectors into the cache or, if through is true, on the disk. The cache retains b.
func (d *diskCache) write(b []byte, at int64, through bool) error {
	for i := 0; i < len(b); i += sectorSize {
		if where := at + int64(i); through {
			delete(d.sectors, where)
		} else {
			d.sectors[where] = b[i : i+sectorSize : i+sectorSize]
		}
	}
	if !through {
		return nil
	}
	_, err := d.file.WriteAt(b, at)
	return err
}

func (d *diskCache) read(b []byte, at int64) error {
	if _, err := d.file.ReadAt(b, at); err != nil {
		return err
	}
	for i := 0; i < len(b); i += sectorSize {
		if s, ok := d.sectors[at+int64(i)]; ok {
			copy(b[i:], s)
		}
	}
	return nil
}

func (d *diskCache) flush() error {
	for at, sector := range d.sectors {
		if _, err := d.file.WriteAt(sector, at); err != nil {
			return err
		}
		delete(d.sectors, at)
	}
	return nil
}
