// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/share"
)

// childSilence is a reader's timeout for a frame.
const childSilence = 5 * time.Second

// TestMain runs a reader in the processes that the test starts for this purpose, or the tests.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(childVariable) {
	case "":
		programtest.Main(m)
		return
	case "webrtc":
		err = watch(os.Getenv("WHEP_URL"), os.Getenv("WHEP_PASSWORD"))
	case "share":
		err = takeFrames(os.Getenv("SHARE_SOCKET"))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// watch is a WHEP viewer. It prints a line for every ten packets, and returns when no more come.
func watch(url, password string) error {
	peer, err := pion.NewPeerConnection(pion.Configuration{})
	if err != nil {
		return err
	}
	defer peer.Close()
	packets := make(chan struct{}, 1024)
	peer.OnTrack(func(track *pion.TrackRemote, _ *pion.RTPReceiver) {
		for {
			if _, _, err := track.ReadRTP(); err != nil {
				return
			}
			select {
			case packets <- struct{}{}:
			default:
			}
		}
	})
	offer, err := programtest.OfferWHEP(context.Background(), peer)
	if err != nil {
		return err
	}
	answer, err := ask(url, password, offer)
	if err != nil {
		return err
	}
	if err := peer.SetRemoteDescription(pion.SessionDescription{Type: pion.SDPTypeAnswer, SDP: answer}); err != nil {
		return err
	}
	for n := 1; ; n++ {
		select {
		case <-packets:
			if n%10 == 0 {
				fmt.Println("frames")
			}
		case <-time.After(childSilence):
			return errors.New("no packet comes")
		}
	}
}

// ask sends an offer to the service, which has a self-signed certificate, and returns the answer.
func ask(url, password, offer string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), childSilence)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(offer))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/sdp")
	r.SetBasicAuth("me", password)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s", answer.Status, b)
	}
	return string(b), err
}

// takeFrames receives frames that the service shares, prints a line for every ten, and connects again when they end.
func takeFrames(socket string) error {
	for {
		if err := takeUntilEnd(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		time.Sleep(readerPause)
	}
}

func takeUntilEnd(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), childSilence)
	defer cancel()
	k, err := share.Dial(ctx, share.ClientConfig{Socket: socket})
	if err != nil {
		return err
	}
	defer k.Close()
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), 4*childSilence)
		f, err := k.Next(ctx)
		cancel()
		if err != nil {
			return err
		}
		if err := f.Release(); err != nil {
			return err
		}
		if n%10 == 0 {
			fmt.Println("frames")
		}
	}
}
