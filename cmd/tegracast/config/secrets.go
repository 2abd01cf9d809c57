// SPDX-License-Identifier: Apache-2.0

package config

import "os"

// A Secret is a file that only the program should be able to read.
type Secret struct {
	Key  string // in the configuration, such as web.key
	Path string
}

// secrets returns the files with passwords, tokens and private keys that the configuration can name. Path is empty if
// it names none.
func (a *Appliance) secrets() []Secret {
	list := []Secret{{"web.key", a.Web.Key}, {"web.password_file", a.Web.PasswordFile}, {"rtsp.password_file", a.RTSP.PasswordFile}}
	if b := a.Bus; b != nil {
		list = append(list, Secret{"bus.password_file", b.PasswordFile}, Secret{"bus.token_file", b.TokenFile},
			Secret{"bus.credentials_file", b.CredentialsFile})
	}
	for i := range a.Outputs {
		o := &a.Outputs[i]
		if k, is := o.Kind.(*RTP); is && k.Publish != nil {
			key := "outputs[" + o.Name + "].rtp.publish."
			list = append(list, Secret{key + "password_file", k.Publish.PasswordFile}, Secret{key + "token_file", k.Publish.TokenFile})
		}
	}
	return list
}

// Exposed returns the files with passwords, tokens and private keys that every user of this machine can read or write.
func (a *Appliance) Exposed() []Secret {
	var list []Secret
	for _, s := range a.secrets() {
		if s.Path == "" {
			continue
		}
		if info, err := os.Stat(s.Path); err == nil && info.Mode().IsRegular() && info.Mode()&0o006 != 0 {
			list = append(list, s)
		}
	}
	return list
}
