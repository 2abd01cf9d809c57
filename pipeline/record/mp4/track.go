// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	amp4 "github.com/abema/go-mp4"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/fmp4"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mp4/codecs"
)

// A Codec is the encoding of the pictures.
type Codec int

// The codecs.
const (
	H264 Codec = iota
	JPEG
)

// A Track describes the pictures of a file. A Writer takes width and height of H.264 from the SPS.
type Track struct {
	Codec         Codec
	Width, Height int
	SPS, PPS      []byte // of H.264, without start codes
}

const (
	trackID   = 1
	timeScale = 90000

	// Limits, in bytes. A reader takes files of others that are twice as large as a Writer's.
	maxHead     = 1 << 20 // ftyp and moov
	maxMoof     = 64 << 20
	maxNotes    = 64 << 20 // of a fragment, without their boxes
	maxFragment = 1 << 30
	maxPicture  = 1 << 28

	epoch1904 = 2082844800 // seconds from 1904, when times of MP4 begin, to 1970
)

// MaxSamples is the maximum number of pictures of a file: 38 hours at 60 frames a second.
const MaxSamples = 1 << 23

// head returns the ftyp and moov boxes of a file.
func (t *Track) head(begun time.Time) ([]byte, error) {
	init := fmp4.Init{Tracks: []*fmp4.InitTrack{{ID: trackID, TimeScale: timeScale}}}
	switch t.Codec {
	case H264:
		if len(t.SPS) == 0 || len(t.PPS) == 0 {
			return nil, errors.New("mp4: a track of H.264 needs the SPS and the PPS of the stream")
		}
		init.Tracks[0].Codec = &codecs.H264{SPS: t.SPS, PPS: t.PPS}
	case JPEG:
		if t.Width < 1 || t.Height < 1 || t.Width > math.MaxUint16 || t.Height > math.MaxUint16 {
			return nil, fmt.Errorf("mp4: a picture of %dx%d: each side must be 1 to 65535", t.Width, t.Height)
		}
		init.Tracks[0].Codec = &codecs.MJPEG{Width: t.Width, Height: t.Height}
	default:
		return nil, fmt.Errorf("mp4: unknown codec %d", t.Codec)
	}
	l := newLayout()
	if err := init.Marshal(&l.buffer); err != nil {
		return nil, fmt.Errorf("mp4: %w", err)
	}
	return rewrite(l.bytes(), func(l *layout, box amp4.IBox) bool {
		switch box := box.(type) {
		case *amp4.Ftyp:
			setBrands(box, "iso6", "isom", "mp42")
		case *amp4.Mvhd:
			setBegun(box, begun)
			box.NextTrackID = trackID + 1
		case *amp4.Btrt: // bit rates, which are unknown
			return false
		}
		return true
	})
}

// setBrands sets the specifications that a file follows, the best first.
func setBrands(box *amp4.Ftyp, names ...string) {
	box.MinorVersion, box.CompatibleBrands = 0, nil
	copy(box.MajorBrand[:], names[0])
	for _, name := range names {
		box.CompatibleBrands = append(box.CompatibleBrands, amp4.CompatibleBrandElem{CompatibleBrand: [4]byte([]byte(name))})
	}
}

// setBegun sets the creation time of a file.
func setBegun(box *amp4.Mvhd, begun time.Time) {
	box.SetVersion(1)
	box.Timescale = timeScale
	box.CreationTimeV1 = uint64(max(begun.Unix()+epoch1904, 0))
	box.ModificationTimeV1 = box.CreationTimeV1
}

// ErrNotFragmented means that pictures are not in fragments, as in a Span. It wraps ErrForeign.
var ErrNotFragmented = fmt.Errorf("mp4: its pictures are not in fragments: %w", ErrForeign)

// readHead decodes the ftyp and moov boxes in f.head.
func (f *File) readHead() error {
	var init fmp4.Init
	if err := init.Unmarshal(bytes.NewReader(f.head)); err != nil {
		return fmt.Errorf("mp4: the moov box at the beginning is damaged: %w", err)
	}
	tracks, fragmented := 0, false
	err := walk(f.head, 2, func(typ amp4.BoxType, payload []byte) error {
		switch typ {
		case amp4.BoxTypeTrak():
			tracks++
		case amp4.BoxTypeMvhd():
			var mvhd amp4.Mvhd
			if err := unmarshal(payload, &mvhd); err != nil {
				return err
			}
			f.Begun = time.Unix(int64(min(mvhd.GetCreationTime(), math.MaxUint32<<1))-epoch1904, 0)
		case amp4.BoxTypeTrex():
			fragmented = true
			return unmarshal(payload, &f.defaults)
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("mp4: the moov box: %w", err)
	case tracks != 1 || len(init.Tracks) != 1:
		return fmt.Errorf("mp4: it has %d tracks, and not one of H.264 or JPEG: %w", tracks, ErrForeign)
	case !fragmented || f.defaults.TrackID != uint32(init.Tracks[0].ID):
		return ErrNotFragmented
	}
	tables, err := amp4.ExtractBoxWithPayload(bytes.NewReader(f.head), nil, amp4.BoxPath{
		amp4.BoxTypeMoov(), amp4.BoxTypeTrak(), amp4.BoxTypeMdia(), amp4.BoxTypeMinf(), amp4.BoxTypeStbl(), amp4.BoxTypeStsz(),
	})
	if err != nil {
		return fmt.Errorf("mp4: the moov box at the beginning is damaged: %w", err)
	}
	for _, t := range tables {
		if stsz, ok := t.Payload.(*amp4.Stsz); ok && stsz.SampleCount > 0 {
			return ErrNotFragmented
		}
	}
	f.scale = int64(init.Tracks[0].TimeScale)
	switch c := init.Tracks[0].Codec.(type) {
	case *codecs.H264:
		var sps h264.SPS
		if err := sps.Unmarshal(c.SPS); err != nil {
			return fmt.Errorf("mp4: the SPS: %w", err)
		}
		f.Track = Track{Codec: H264, Width: sps.Width(), Height: sps.Height(), SPS: c.SPS, PPS: c.PPS}
	case *codecs.MJPEG:
		f.Track = Track{Codec: JPEG, Width: c.Width, Height: c.Height}
	default:
		return fmt.Errorf("mp4: its track is %s, not H.264 or JPEG: %w", strings.TrimPrefix(fmt.Sprintf("%T", c), "*codecs."), ErrForeign)
	}
	return nil
}
