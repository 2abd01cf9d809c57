// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	spec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	imageUser  = 65532 // user and group of the program in the image
	stateDir   = "/var/lib/tegracast"
	runtimeDir = "/run/tegracast"
)

// image writes a container image for an architecture: an archive in the format of the Open Container Initiative, which
// also has the manifest.json that docker before release 25 reads. The lower layer is the same for many releases.
func (p *packer) image(arch string) error {
	files := map[string][]byte{}
	store := func(mediaType string, blob []byte) spec.Descriptor {
		d := digest.FromBytes(blob)
		files["blobs/sha256/"+d.Encoded()] = blob
		return spec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(blob))}
	}
	base, err := p.debian(arch)
	program, err2 := p.upperLayer(arch)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	manifest := spec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: spec.MediaTypeImageManifest}
	config := p.imageConfig(arch)
	for _, layer := range [][]byte{base, program} {
		packed, err := zipped(layer, gzip.DefaultCompression)
		if err != nil {
			return err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(layer))
		manifest.Layers = append(manifest.Layers, store(spec.MediaTypeImageLayerGzip, packed))
	}
	manifest.Config = store(spec.MediaTypeImageConfig, encode(config))
	entry := store(spec.MediaTypeImageManifest, encode(manifest))
	tag := strings.NewReplacer("~", "-", "+", "-").Replace(p.id.version) // a tag has neither
	entry.Platform = &config.Platform
	entry.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/tegracast:" + tag, spec.AnnotationRefName: tag}
	files[spec.ImageLayoutFile] = encode(spec.ImageLayout{Version: spec.ImageLayoutVersion})
	files[spec.ImageIndexFile] = encode(spec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: spec.MediaTypeImageIndex, Manifests: []spec.Descriptor{entry},
	})
	blob := func(d spec.Descriptor) string { return "blobs/sha256/" + d.Digest.Encoded() }
	files["manifest.json"] = encode([]any{map[string]any{
		"Config": blob(manifest.Config), "RepoTags": []string{"tegracast:" + tag}, "Layers": []string{blob(manifest.Layers[0]), blob(manifest.Layers[1])},
	}})
	a := newArchive(p.id.made)
	for _, name := range sorted(files) {
		a.add(name, 0o644, files[name])
	}
	text, err := a.bytes()
	if err != nil {
		return err
	}
	return p.publish(p.title(arch)+".oci.tar", text)
}

// encode returns a value as JSON.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // the values have fixed types
	}
	return text
}

// upperLayer returns the layer with the program, its user and its folders.
func (p *packer) upperLayer(arch string) ([]byte, error) {
	program, err := os.ReadFile(p.programFor(arch))
	copyright, err2 := os.ReadFile(filepath.Join(p.root, "systemd/deb/tegracast.copyright"))
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	a := newArchive(p.id.made)
	a.add("etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/root:/sbin/nologin\ntegracast:x:%d:%[1]d:tegracast:%s:/sbin/nologin\n", imageUser, stateDir))
	a.add("etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\ntegracast:x:%d:\n", imageUser))
	a.add("etc/tegracast/", 0o755, nil)
	for _, folder := range []string{stateDir, runtimeDir} {
		a.write(&tar.Header{Name: folder[1:] + "/", Mode: 0o755, Uid: imageUser, Gid: imageUser, ModTime: p.id.made, Format: tar.FormatGNU}, nil)
	}
	a.add("usr/bin/tegracast", 0o755, program)
	a.add("usr/share/doc/tegracast/copyright", 0o644, copyright)
	return a.bytes()
}

// imageConfig returns how a container of the image runs by default.
func (p *packer) imageConfig(arch string) spec.Image {
	return spec.Image{
		Created: &p.id.made, Platform: spec.Platform{OS: "linux", Architecture: arch},
		Config: spec.ImageConfig{
			User:       fmt.Sprintf("%d:%[1]d", imageUser),
			Entrypoint: []string{"/usr/bin/tegracast"}, Cmd: []string{"serve"},
			Env: []string{
				"PATH=/usr/bin", "STATE_DIRECTORY=" + stateDir, "RUNTIME_DIRECTORY=" + runtimeDir,
				"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all", // for NVIDIA's runtime
			},
			Volumes: map[string]struct{}{stateDir: {}}, WorkingDir: stateDir,
			Labels: map[string]string{
				spec.AnnotationTitle: "tegracast", spec.AnnotationDescription: "streaming appliance for Jetson boards with an FPGA camera",
				spec.AnnotationVersion: p.id.version, spec.AnnotationRevision: p.id.commit, spec.AnnotationLicenses: "Apache-2.0",
				spec.AnnotationSource: "https://github.com/tegracast/tegracast", spec.AnnotationCreated: p.id.made.Format(time.RFC3339),
			},
		},
		RootFS: spec.RootFS{Type: "layers"},
	}
}
