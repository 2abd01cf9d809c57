// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// ErrReading means that a file is still being read. That goes on, and the caller can ask again.
var ErrReading = errors.New("the recording is being read")

// Limits of the files that are kept.
const (
	keptTime    = time.Minute // since a file was last asked for
	keptFiles   = 4
	keptSamples = 1 << 20 // of all, each with 24 bytes; one file may have more
)

// parsedVideos holds the tables of MP4 files that were asked for a moment ago. To read those of a file of many hours
// from a disk takes seconds, and a player asks for parts of it again and again.
type parsedVideos struct {
	turn chan struct{} // holds a value while a file is being read

	mu   sync.Mutex
	list []*parsedVideo // the one that was asked for last is the last
}

// A parsedVideo is a file as it was when in was opened.
type parsedVideo struct {
	in      *File
	growing bool          // it was being written
	done    chan struct{} // closed when the following are known
	file    *mp4.File     // has no pictures to be read; File.From gives them
	err     error
	forget  *time.Timer // guarded by parsedVideos.mu; nil: not done
}

// of returns the tables of a file as it was when it was opened. If ctx ends before they are read, the error wraps ErrReading.
func (p *parsedVideos) of(ctx context.Context, d *folder, in *File) (*mp4.File, error) {
	v, _ := p.find(in)
	if v == nil {
		select {
		case p.turn <- struct{}{}:
			var before *parsedVideo
			if v, before = p.find(in); v != nil {
				<-p.turn // ends: this call has sent a value
			} else {
				v = p.begin(d, in, before)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another one is read before it", ErrReading)
		}
	}
	select {
	case <-v.done:
		return v.file, v.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %d %%", ErrReading, v.in.at.Load()*100/max(v.in.info.Size(), 1))
	}
}

// find returns the video that is known of a file, or is being read. If a shorter one is known, it returns that as before.
func (p *parsedVideos) find(in *File) (v, before *parsedVideo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	info := in.info
	i := slices.IndexFunc(p.list, in.isSame)
	if i < 0 {
		return nil, nil
	}
	v = p.list[i]
	switch is := v.in.info; {
	case v.forget != nil && v.growing && is.Size() < info.Size():
		return nil, v
	case v.forget != nil && (is.Size() != info.Size() || !is.ModTime().Equal(info.ModTime())):
		return nil, nil
	}
	p.list = append(slices.Delete(p.list, i, i+1), v)
	if v.forget != nil {
		v.forget.Reset(keptTime)
	}
	return v, nil
}

// begin begins to read a file, from the end of before on unless that is nil. The caller has the turn, which ends with it.
func (p *parsedVideos) begin(d *folder, in *File, before *parsedVideo) *parsedVideo {
	v := &parsedVideo{in: in, growing: d.writing.has(in.Name()), done: make(chan struct{})}
	p.mu.Lock()
	p.drop(in.isSame)
	p.list = append(p.list, v)
	p.mu.Unlock()
	in.use()
	go func() {
		v.file, v.err = patiently(d, in, func() (*mp4.File, error) {
			defer func() { _ = in.Close() }() // it was only read
			if before != nil {
				return before.file.Grown(in, in.info.Size())
			}
			return mp4.Read(in, in.info.Size())
		})
		p.finish(v)
		close(v.done)
		<-p.turn // ends: the caller has sent a value
	}()
	return v
}

// finish keeps a video that was read, and forgets those beyond the limits.
func (p *parsedVideos) finish(v *parsedVideo) {
	is := func(x *parsedVideo) bool { return x == v }
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.err != nil {
		p.drop(is)
		return
	}
	v.forget = time.AfterFunc(keptTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(is)
	})
	samples := 0
	for _, x := range p.list {
		samples += x.file.Len()
	}
	for len(p.list) > 1 && (len(p.list) > keptFiles || samples > keptSamples) {
		samples -= p.list[0].file.Len()
		first := p.list[0]
		p.drop(func(x *parsedVideo) bool { return x == first })
	}
}

// drop forgets videos. Their timers end, which would keep the tables in memory. The lock must be held.
func (p *parsedVideos) drop(which func(*parsedVideo) bool) {
	p.list = slices.DeleteFunc(p.list, func(x *parsedVideo) bool {
		if !which(x) {
			return false
		}
		if x.forget != nil {
			x.forget.Stop()
		}
		return true
	})
}

// isSame reports whether v is of this file. A deleted file's inode may be that of a new one, which has another name.
func (f *File) isSame(v *parsedVideo) bool {
	return os.SameFile(v.in.info, f.info) && v.in.Name() == f.Name()
}
