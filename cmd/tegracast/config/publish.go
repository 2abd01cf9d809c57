// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"log/slog"
	"net/url"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtsp"
	"github.com/tegracast/tegracast/pipeline/rtp/webrtc"
)

// Publish is a server that receives an output's stream and distributes it to the server's own readers.
type Publish struct {
	URL          string `yaml:"url" jsonschema_description:"rtsp://HOST:PORT/NAME of a server that takes streams (RTSP RECORD), such as MediaMTX, or for payload h264 https://HOST/PATH of one that takes them by WebRTC (WHIP), such as LiveKit. If the connection is lost, it is tried again."`
	User         string `yaml:"user,omitempty" jsonschema_description:"For rtsp: user name for publishing (default: none; the server requires no login)."`
	PasswordFile string `yaml:"password_file,omitempty" jsonschema_description:"File with the user's password in its first line."`
	TokenFile    string `yaml:"token_file,omitempty" jsonschema_description:"For https: file with the token that the server asks for, in its first line. It is read at each attempt to publish."`
}

// WHIP reports whether the server receives the stream by WebRTC, because the scheme of its URL is https or http.
func (p *Publish) WHIP() bool {
	u, err := url.Parse(p.URL)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http")
}

// Check refuses invalid values.
func (p *Publish) Check(at yamlfile.Section, payload rtp.Payload) error {
	if payload == rtp.Results {
		return at.Errorf("servers take pictures: leave publish out")
	}
	if p.WHIP() {
		switch err := webrtc.CheckURL(p.URL, p.TokenFile != ""); {
		case err != nil:
			return at.Key("url").Errorf("%w", err)
		case payload != rtp.H264:
			return at.Key("url").Errorf("by WebRTC servers take payload h264 alone: publish to an address with rtsp, or make the payload h264")
		case p.User != "" || p.PasswordFile != "":
			return at.Key("user").Errorf("by WebRTC servers ask for a token: write token_file instead of user and password_file")
		}
		return nil
	}
	switch err := rtsp.CheckURL(p.URL); {
	case err != nil:
		return at.Key("url").Errorf("%w", err)
	case p.TokenFile != "":
		return at.Key("token_file").Errorf("by RTSP servers ask for a password: write user and password_file instead of token_file")
	}
	return together(at, p.User, p.PasswordFile)
}

// ByRTSP returns the RTSP server to publish to, with the password read from its file. It may be called only if WHIP
// returns false.
func (p *Publish) ByRTSP(log *slog.Logger) (r rtsp.Remote, err error) {
	r = rtsp.Remote{URL: p.URL, User: p.User, Logger: log}
	if p.PasswordFile != "" {
		if r.Password, err = Password(p.PasswordFile); err != nil {
			return r, fmt.Errorf("publish.password_file: %w", err)
		}
	}
	return r, nil
}

// ByWHIP returns the WHIP server to publish to. It may be called only if WHIP returns true.
func (p *Publish) ByWHIP() webrtc.Remote {
	r := webrtc.Remote{URL: p.URL}
	if p.TokenFile != "" {
		r.Token = func() (string, error) {
			token, err := Password(p.TokenFile)
			if err != nil {
				return "", fmt.Errorf("publish.token_file: %w", err)
			}
			return token, nil
		}
	}
	return r
}
