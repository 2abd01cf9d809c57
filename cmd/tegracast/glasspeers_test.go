// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// peerPage plays the peer's stream, draws it like the program's page, and stores the two numbers of each picture and the
// time of drawing in ms. The program requests no delay by the header extension playout-delay; this page itself requests
// none.
const peerPage = `<!doctype html><title>webrtcbin</title><video muted playsinline></video><canvas id="canvas" width="960" height="540"></canvas><script>
"use strict";
window.seen = [];
const video = document.querySelector("video"), canvas = document.querySelector("canvas"), g = canvas.getContext("2d");
const peer = new RTCPeerConnection();
const draw = () => {
	video.requestVideoFrameCallback(draw);
	const picture = new VideoFrame(video); // may fail at first
	g.drawImage(picture, 0, 0, canvas.width, canvas.height);
	picture.close();
	const now = performance.timeOrigin + performance.now();
	if (window.numbers) seen.push([...numbers(g), now]);
};
peer.addEventListener("track", (e) => {
	e.receiver.jitterBufferTarget = 0;
	e.receiver.playoutDelayHint = 0;
	video.srcObject = new MediaStream([e.track]);
	video.requestVideoFrameCallback(draw);
	video.play();
});
const begin = async () => {
	await peer.setRemoteDescription({ type: "offer", sdp: await (await fetch("offer")).text() });
	await peer.setLocalDescription();
	if (peer.iceGatheringState !== "complete")
		await new Promise((done) => peer.addEventListener("icegatheringstatechange", () => peer.iceGatheringState === "complete" && done()));
	await fetch("answer", { method: "POST", body: peer.localDescription.sdp });
};
begin();
</script>`

// glassPeer measures GStreamer's webrtcbin as the sender: the time from the last line of a picture in its pipe, written
// at the speed of the model camera's readout, to the pixels on a canvas, in ms. The pictures have the same numbers in the
// same places.
func glassPeer(b *testing.B) (late []float64) {
	b.Helper()
	frames, pictures, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := unix.FcntlInt(pictures.Fd(), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		b.Fatal(err)
	}
	c := exec.Command("/usr/bin/python3", "testdata/webrtcbin.py", fmt.Sprint(stampWidth), fmt.Sprint(stampHeight), "30", "4000000")
	c.ExtraFiles, c.Stderr = []*os.File{frames}, b.Output()
	offer, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	answer, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	_ = frames.Close()
	var ending sync.WaitGroup
	defer ending.Wait()
	x := &lineClock{}
	ending.Go(func() { x.write(pictures) })
	ending.Go(func() { _, _ = c.Process.Wait() }) // the pipes are read meanwhile
	server := httptest.NewServer(signalling(offer, answer))
	defer server.Close()
	defer func() { _ = c.Process.Kill() }() // before the server closes, which would wait for the offer
	ctx, _ := browser(b, server.URL+"/")
	evaluate[bool](ctx, b, stampReader)
	awaitPage(ctx, b, "pictures by webrtcbin", fmt.Sprintf("seen.length >= %d", glassFrames+10))
	for _, s := range evaluate[[][3]float64](ctx, b, "seen.slice(10)") { // without the start of the view
		if ms, ok := x.since(int(s[0]), int(s[1]), s[2]); ok {
			late = append(late, ms)
		}
	}
	closes(ctx, b)
	return late
}

// signalling serves the page, and takes its answer to the offer.
func signalling(offer io.Reader, answer io.WriteCloser) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, peerPage) })
	mux.HandleFunc("GET /offer", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, offer) })
	mux.HandleFunc("POST /answer", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(answer, r.Body)
		_ = answer.Close()
	})
	return mux
}

// A lineClock writes the pictures, and records when the last line of each was written.
type lineClock struct {
	mu      sync.Mutex
	written []time.Time
}

// write writes 30 pictures per second (I420) until the reader leaves.
func (x *lineClock) write(w *os.File) {
	defer w.Close()
	const readout, steps = 15 * time.Millisecond, 68
	begun := time.Now()
	for n := 0; ; n++ {
		picture := stampedPicture(n)
		for i := range steps {
			time.Sleep(time.Until(begun.Add(time.Duration(n)*time.Second/30 + readout*time.Duration(i+1)/steps)))
			if _, err := w.Write(picture[len(picture)*i/steps : len(picture)*(i+1)/steps]); err != nil {
				return
			}
		}
		x.mu.Lock()
		x.written = append(x.written, time.Now())
		x.mu.Unlock()
	}
}

// since returns the time in ms from the last line of the newest picture with these numbers until at. ok is false if there
// is no such picture.
func (x *lineClock) since(blocks, file int, at float64) (ms float64, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := len(x.written) - 1; n >= 0; n-- {
		ms = at - float64(x.written[n].UnixMicro())/1000
		if n%stampBlocks == blocks && n%stampFrames == file && ms >= 0 {
			return ms, true
		}
	}
	return 0, false
}

// stampedPicture returns picture n, as made by numbered and shifted by the sensor.
func stampedPicture(n int) []byte {
	const black, white = 40, 220
	picture := bytes.Repeat([]byte{128}, stampWidth*stampHeight*3/2)
	for y := range stampHeight {
		bit := (y - stampTop) / stampBar
		for x := range stampWidth {
			number := (x/stampBlock + n) % stampBlocks
			if bit >= stampMoving {
				number = n % stampFrames << stampMoving
			}
			sample := byte(black)
			if y >= stampTop && bit < stampMoving+stampFixed && number>>bit&1 != 0 {
				sample = white
			}
			picture[y*stampWidth+x] = sample
		}
	}
	return picture
}
