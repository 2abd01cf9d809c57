// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
)

// maxSDP is the maximum size of a session description in bytes. A typical description has about 1000.
const maxSDP = 1 << 20

// A probed is a stream that probe receives.
type probed struct {
	name     string // the path of the SDP file, with #2 appended for its second stream, #3 for its third, and so on
	media    rtp.Media
	receiver *receive.Receiver
}

// readSDPs returns the streams that the files describe. It returns an error if paths is empty, if a file is not a valid
// description, or if two streams have the same destination and source.
func readSDPs(paths []string) ([]*probed, error) {
	if len(paths) == 0 {
		return nil, errors.New("name the stream's description, tegracast probe FILE.sdp: tegracast serve writes one for each output")
	}
	type place struct {
		address string
		port    int
	}
	var all []*probed
	taken := map[place]string{}
	for _, path := range paths {
		b, err := files.ReadRegular(path, maxSDP, "a session description")
		if err != nil {
			return nil, err
		}
		media, err := rtp.ParseSDP(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for i, m := range media {
			name := path
			if i > 0 {
				name = fmt.Sprintf("%s#%d", path, i+1)
			}
			to := place{fmt.Sprint(m.Address, m.Source), m.Port}
			if other := taken[to]; other != "" {
				return nil, fmt.Errorf("%s: goes to port %d of %s, as %s does: give each stream once", name, m.Port, m.Address, other)
			}
			taken[to] = name
			all = append(all, &probed{name: name, media: m})
		}
	}
	return all, nil
}
