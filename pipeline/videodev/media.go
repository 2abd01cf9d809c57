// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Structures of linux/media.h.

type mediaTopology struct {
	version       uint64
	entities, _   uint32
	entitiesAt    uint64
	interfaces, _ uint32
	interfacesAt  uint64
	pads, _       uint32
	padsAt        uint64
	links, _      uint32
	linksAt       uint64
}

type mediaEntity struct {
	id       uint32
	name     [64]byte
	function uint32
	flags    uint32
	_        [5]uint32
}

type mediaInterface struct {
	id, kind, flags uint32
	_               [9]uint32
	major, minor    uint32
	_               [14]uint32
}

type mediaPad struct {
	id, entity, flags, index uint32
	_                        [4]uint32
}

type mediaLink struct {
	id, source, sink, flags uint32
	_                       [6]uint32
}

const (
	getTopology = reads | writes | unsafe.Sizeof(mediaTopology{})<<16 | '|'<<8 | 4

	isSensor      = 0x00020001 // MEDIA_ENT_F_CAM_SENSOR
	padSink       = 1
	linkEnabled   = 1
	linkImmutable = 2
	linkKinds     = 0xf << 28
	linkInterface = 1 << 28
	interfaceNode = 0x00000200 // MEDIA_INTF_T_V4L_VIDEO
	interfaceSub  = 0x00000203 // MEDIA_INTF_T_V4L_SUBDEV
)

// mostParts is the largest number of entities, pads, links or interfaces of a graph that is read.
const mostParts = 1 << 12

// A Number is the major and the minor number of a device file.
type Number struct{ Major, Minor uint32 }

// A Graph is a media device: entities, whose pads are joined by links.
type Graph struct {
	Entities []Entity
	Links    []Link
}

// An Entity is a part of a media device, such as a sensor. Node is the number of its device file: that of a video device,
// or, if Subdevice, that of a part of one; the zero Number means that it has none.
type Entity struct {
	ID        uint32
	Name      string
	Sensor    bool
	Subdevice bool
	Node      Number
}

// A Link joins the pad of one entity to that of another one. Entities are indexes of Graph.Entities.
type Link struct {
	From, FromPad int
	To, ToPad     int
	Enabled       bool
	Immutable     bool
}

// ErrGraph means that a media device describes no graph that can be used.
var ErrGraph = errors.New("graph of the media device")

// Topology reads the graph of a media device (media-ioc-g-topology). A graph that changes while it is read is read again.
func Topology(d Caller) (*Graph, error) {
	for range 5 {
		t := &mediaTopology{}
		if err := d.Ioctl(getTopology, unsafe.Pointer(t)); err != nil {
			return nil, fmt.Errorf("MEDIA_IOC_G_TOPOLOGY: %w", err)
		}
		if max(t.entities, t.interfaces, t.pads, t.links) > mostParts {
			return nil, fmt.Errorf("%w: %d entities, %d interfaces, %d pads, %d links", ErrGraph, t.entities, t.interfaces, t.pads, t.links)
		}
		entities, interfaces := make([]mediaEntity, t.entities+1), make([]mediaInterface, t.interfaces+1)
		pads, links := make([]mediaPad, t.pads+1), make([]mediaLink, t.links+1) // one more, which has an address if there is none
		want := *t
		var pins runtime.Pinner // a stack, on which they might lie, moves
		pins.Pin(&entities[0])
		pins.Pin(&interfaces[0])
		pins.Pin(&pads[0])
		pins.Pin(&links[0])
		t.entitiesAt, t.interfacesAt = uint64(uintptr(unsafe.Pointer(&entities[0]))), uint64(uintptr(unsafe.Pointer(&interfaces[0])))
		t.padsAt, t.linksAt = uint64(uintptr(unsafe.Pointer(&pads[0]))), uint64(uintptr(unsafe.Pointer(&links[0])))
		err := d.Ioctl(getTopology, unsafe.Pointer(t))
		pins.Unpin()
		switch {
		case errors.Is(err, unix.ENOSPC), err == nil && t.version != want.version:
			continue
		case err != nil:
			return nil, fmt.Errorf("MEDIA_IOC_G_TOPOLOGY: %w", err)
		}
		return newGraph(entities[:want.entities], interfaces[:want.interfaces], pads[:want.pads], links[:want.links]), nil
	}
	return nil, fmt.Errorf("%w: it changes while it is read", ErrGraph)
}

// quotable replaces quotes in names, which stand in quotes in commands.
var quotable = strings.NewReplacer(`"`, ".", "'", ".")

// newGraph joins the parts of a graph. Parts that name others that do not exist are left out.
func newGraph(entities []mediaEntity, interfaces []mediaInterface, pads []mediaPad, links []mediaLink) *Graph {
	g := &Graph{}
	index := map[uint32]int{} // of entities, by number
	for _, e := range entities {
		index[e.id] = len(g.Entities)
		g.Entities = append(g.Entities, Entity{ID: e.id, Name: quotable.Replace(text(e.name[:])), Sensor: e.function == isSensor})
	}
	nodes, at := map[uint32]mediaInterface{}, map[uint32]mediaPad{}
	for _, i := range interfaces {
		nodes[i.id] = i
	}
	for _, p := range pads {
		at[p.id] = p
	}
	for _, l := range links {
		if l.flags&linkKinds == linkInterface {
			node, known := nodes[l.source]
			e, there := index[l.sink]
			if known && there && (node.kind == interfaceNode || node.kind == interfaceSub) {
				g.Entities[e].Node, g.Entities[e].Subdevice = Number{node.major, node.minor}, node.kind == interfaceSub
			}
			continue
		}
		from, known := at[l.source]
		to, there := at[l.sink]
		a, isA := index[from.entity]
		b, isB := index[to.entity]
		if l.flags&linkKinds != 0 || !known || !there || !isA || !isB || to.flags&padSink == 0 || from.index > mostParts || to.index > mostParts {
			continue
		}
		g.Links = append(g.Links, Link{a, int(from.index), b, int(to.index), l.flags&linkEnabled != 0, l.flags&linkImmutable != 0})
	}
	return g
}

// Path returns the links from a sensor to the video device with a number, in the order of the pixels, and the sensor's
// index. Enabled links are preferred. It returns an error if no sensor leads there.
func (g *Graph) Path(video Number) (path []Link, sensor int, err error) {
	start := slices.IndexFunc(g.Entities, func(e Entity) bool { return !e.Subdevice && e.Node == video && video != Number{} })
	if start < 0 {
		return nil, -1, fmt.Errorf("%w: no entity has the device file %d:%d", ErrGraph, video.Major, video.Minor)
	}
	for _, all := range []bool{false, true} { // by enabled links, then by all
		behind, line := map[int]Link{}, []int{start}
		seen := map[int]bool{start: true}
		for len(line) > 0 {
			e := line[0]
			line = line[1:]
			if g.Entities[e].Sensor {
				for at := e; at != start; at = behind[at].To {
					path = append(path, behind[at])
				}
				return path, e, nil
			}
			for _, l := range g.Links {
				if l.To == e && !seen[l.From] && (all || l.Enabled) {
					seen[l.From], behind[l.From] = true, l
					line = append(line, l.From)
				}
			}
		}
	}
	return nil, -1, fmt.Errorf("%w: no sensor is linked to %s", ErrGraph, g.Entities[start].Name)
}

// A PadFormat is the format of a pad of a subdevice.
type PadFormat struct{ Code, Width, Height uint32 }

// Pad returns the format of a pad of an open subdevice (vidioc-subdev-g-fmt).
func Pad(d Caller, pad int) (PadFormat, error) {
	f := &SubdeviceFormat{Which: Active, Pad: uint32(pad)}
	if err := d.Ioctl(GetSubdeviceFormat, unsafe.Pointer(f)); err != nil {
		return PadFormat{}, fmt.Errorf("VIDIOC_SUBDEV_G_FMT of pad %d: %w", pad, err)
	}
	return PadFormat{f.Code, f.Width, f.Height}, nil
}

// Repair returns the commands of media-ctl that make a path carry pixels of a format: links that are off, then pads with
// another format. media is the device file of the graph. pad returns the format of a pad, or false if it has none.
func (g *Graph) Repair(media string, path []Link, want PadFormat, pad func(entity, pad int) (PadFormat, bool)) (lines []string) {
	for _, l := range path {
		if !l.Enabled && !l.Immutable {
			lines = append(lines, fmt.Sprintf("media-ctl -d %s -l '\"%s\":%d->\"%s\":%d[1]'",
				media, g.Entities[l.From].Name, l.FromPad, g.Entities[l.To].Name, l.ToPad))
		}
	}
	code := want.Code
	for _, l := range path {
		for _, end := range [][2]int{{l.From, l.FromPad}, {l.To, l.ToPad}} {
			now, has := pad(end[0], end[1])
			if !has {
				continue
			}
			if code == 0 {
				code = now.Code // that of the sensor, which is first
			}
			if now != (PadFormat{code, want.Width, want.Height}) && code != 0 {
				lines = append(lines, fmt.Sprintf("media-ctl -d %s -V '\"%s\":%d[fmt:%s/%dx%d]'",
					media, g.Entities[end[0]].Name, end[1], BusName(code), want.Width, want.Height))
			}
		}
	}
	return lines
}
