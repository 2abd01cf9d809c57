// SPDX-License-Identifier: Apache-2.0

// Livekittest receives the video of a room with LiveKit's SDK, and writes the given number of frames of its H.264
// stream to standard output, as a byte stream (ITU-T H.264 Annex B).
//
//	livekittest URL TOKEN FRAMES
package main

import (
	"log"
	"os"
	"strconv"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media/h264writer"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: livekittest URL TOKEN FRAMES")
	}
	frames, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	room, err := lksdk.ConnectToRoomWithToken(os.Args[1], os.Args[2], &lksdk.RoomCallback{
		ParticipantCallback: lksdk.ParticipantCallback{
			OnTrackSubscribed: func(track *webrtc.TrackRemote, _ *lksdk.RemoteTrackPublication, _ *lksdk.RemoteParticipant) {
				done <- write(track, frames)
			},
		},
	})
	if err == nil {
		err = <-done
		room.Disconnect()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// write writes the given number of frames of a track to standard output.
func write(track *webrtc.TrackRemote, frames int) error {
	out := h264writer.NewWith(os.Stdout)
	for frames > 0 {
		p, _, err := track.ReadRTP()
		if err == nil {
			err = out.WriteRTP(p)
		}
		if err != nil {
			return err
		}
		if p.Marker {
			frames--
		}
	}
	return nil
}
