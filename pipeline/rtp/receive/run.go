// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// tick is the interval at which a Receiver checks its context and publishes its counts.
const tick = 50 * time.Millisecond

// patience is the maximum time that a Receiver waits at the end for packets that were overtaken, and for the last
// checksums.
const patience = 200 * time.Millisecond

// readerNice is the nice value of the thread that reads the sockets. Packets that it does not read in time are lost.
const readerNice = -10

// Run receives until ctx ends, and up to 200 ms longer if packets that were sent before the last one received, or the
// checksums of the last two frames, are still expected. It then returns nil, or an error if the sockets cannot be read
// or closed. Stats still returns the last counts.
//
// One thread reads the sockets into the ring. The caller's goroutine puts frames together and verifies them.
func (r *Receiver) Run(ctx context.Context) error {
	var reader sync.WaitGroup
	reader.Go(func() {
		if err := r.read(ctx); err != nil {
			r.ring.fail(err)
		}
	})
	err := r.assemble()
	r.ring.close()
	reader.Wait()
	r.stream.finish()
	r.publish()
	return errors.Join(err, r.Close())
}

// read reads the sockets until the ring is closed.
func (r *Receiver) read(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked, so that the thread ends and its priority is not inherited
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, readerNice)
	wait, woken := tick, time.Now()
	for ended := false; !r.ring.isClosed(); {
		fds := [2]unix.PollFd{{Fd: int32(r.rtp), Events: unix.POLLIN}, {Fd: int32(r.rtcp), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds[:], int(wait/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		end := !ended && ctx.Err() != nil // packets that have arrived by now count
		if err := r.drain(end || fds[0].Revents != 0, end || fds[1].Revents != 0); err != nil {
			return err
		}
		now := time.Now()
		if end {
			r.countDrops()
			ended, wait = true, time.Millisecond
			r.ring.endReception(now)
		}
		if now.Sub(woken) >= wait {
			if woken = now; !ended {
				r.countDrops()
			}
			r.ring.wake()
		}
	}
	return nil
}

// countDrops reads the number of datagrams that the kernel has dropped at the RTP socket because its buffer was full.
func (r *Receiver) countDrops() {
	if n, ok := socketDrops(r.rtp); ok {
		r.drops.Add(int64(n - r.dropped)) // the kernel's counter may wrap around
		r.dropped = n
	}
}

// socketDrops returns the kernel's count of datagrams dropped at a socket (SO_MEMINFO, since Linux 4.12), or false if
// it is not available.
func socketDrops(fd int) (n uint32, ok bool) {
	var info [9]uint32 // SK_MEMINFO_VARS of linux/sock_diag.h; the last one is SK_MEMINFO_DROPS
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	return info[len(info)-1], errno == 0 && size == uint32(unsafe.Sizeof(info))
}

// drain reads a limited number of datagrams from the RTP socket, the RTCP socket or both into the ring. It waits while
// the ring is full.
func (r *Receiver) drain(rtp, rtcp bool) error {
	for i := 0; rtp && i < 16; i++ {
		at, n := r.ring.space()
		if n == 0 {
			return nil
		}
		got, err := r.ring.receive(r.rtp, at, n)
		if err != nil {
			return err
		}
		if r.ring.putDatagrams(got); got < n {
			break
		}
	}
	for i := 0; rtcp && i < 16; i++ {
		at, n := r.ring.space()
		if n == 0 || !r.ring.control(r.rtcp, at) {
			break
		}
		r.ring.putDatagrams(1)
	}
	return nil
}

// assemble feeds the stream with the datagrams of the ring, until everything that counts has arrived or the patience
// ends.
func (r *Receiver) assemble() error {
	var patient time.Time // end of the patience
	for published := time.Now(); ; {
		from, n, over, err := r.ring.takeDatagrams()
		if err != nil {
			return err
		}
		for i := range n {
			r.feed(from + i)
		}
		r.ring.done(n)
		now := time.Now()
		if over {
			r.over, patient = r.ring.endAt, now.Add(patience)
			r.stream.stop()
		}
		if !r.over.IsZero() && (!r.stream.awaits() || now.After(patient)) {
			return nil
		}
		if n == 0 || now.Sub(published) >= tick {
			published = now
			r.sendReport(now)
			r.publish()
		}
	}
}

// feed feeds the stream with the packets of the datagram at place i of the ring.
func (r *Receiver) feed(i int) {
	about := &r.ring.about[i]
	b, size, whole := r.ring.datagram(i)
	switch {
	case about.rtcp:
		r.stream.control(b, about.from, about.at)
		return
	case !whole:
		r.stream.malformed()
		return
	}
	for ; len(b) > size; b = b[size:] {
		r.stream.packet(b[:size], about.at)
	}
	r.stream.packet(b, about.at)
}

// sendReport sends a receiver report, if one is due, to the address from which the sender's reports come.
func (r *Receiver) sendReport(now time.Time) {
	if now.Sub(r.told) < rtp.ReportInterval {
		return
	}
	if !r.stream.sr.from.IsValid() { // with Media.Mux the source of reports is not known
		return
	}
	if b := r.stream.report(now); b != nil {
		r.told = now
		_ = unix.Sendto(r.rtcp, b, unix.MSG_DONTWAIT, udp.Sockaddr(r.stream.sr.from)) // best effort
	}
}

func (r *Receiver) publish() {
	st := r.stream.snapshot()
	st.Buffer, st.Drops = r.buffer, r.drops.Load()
	if until := r.over; !st.LastPacket.IsZero() {
		if until.IsZero() {
			until = time.Now()
		}
		st.Silence = max(0, until.Sub(st.LastPacket))
	}
	r.mu.Lock()
	r.stats = st
	r.mu.Unlock()
}
