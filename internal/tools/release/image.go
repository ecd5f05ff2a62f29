package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An image is an archive of an OCI layout (github.com/opencontainers/image-spec). It has blobs by their
// checksum, and an index that names one manifest for each platform. Each platform has one layer with the
// binary alone, which is static. docker load and skopeo read it. Nothing in it depends on when it was made.

type descriptor struct {
	MediaType string            `json:"mediaType"`
	Digest    string            `json:"digest"`
	Size      int               `json:"size"`
	Platform  map[string]string `json:"platform,omitempty"`
}

const media = "application/vnd.oci.image."

// blobs are the content of a layout, by path.
type blobs map[string][]byte

func (b blobs) add(kind string, content []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	b["blobs/sha256/"+sum] = content
	return descriptor{MediaType: media + kind, Digest: "sha256:" + sum, Size: len(content)}
}

func (b blobs) addJSON(kind string, v any) (descriptor, error) {
	content, err := json.Marshal(v)
	return b.add(kind, content), err
}

// image writes the image of the binaries for Linux.
func (a *artifacts) image(binaries []string) error {
	layout, manifests := blobs{}, []descriptor{}
	for i, p := range a.platforms {
		if p.os != "linux" {
			continue
		}
		program, err := os.ReadFile(filepath.Join(a.out, binaries[i]))
		if err != nil {
			return err
		}
		content, err := archive(map[string][]byte{"millrace": program}, 0o755)
		if err != nil {
			return err
		}
		layer := layout.add("layer.v1.tar", content)
		config, err := layout.addJSON("config.v1+json", map[string]any{
			"architecture": p.arch, "os": p.os, "rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest}},
			"config": map[string]any{"User": "65532:65532", "Entrypoint": []string{"/millrace"}, "Labels": map[string]string{
				"org.opencontainers.image.version": a.version, "org.opencontainers.image.source": "https://" + library, "org.opencontainers.image.licenses": "Apache-2.0",
			}},
		})
		if err != nil {
			return err
		}
		manifest, err := layout.addJSON("manifest.v1+json", map[string]any{"schemaVersion": 2, "mediaType": media + "manifest.v1+json", "config": config, "layers": []descriptor{layer}})
		if err != nil {
			return err
		}
		manifest.Platform = map[string]string{"os": p.os, "architecture": p.arch}
		manifests = append(manifests, manifest)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": media + "index.v1+json", "manifests": manifests})
	if err != nil {
		return err
	}
	layout["index.json"], layout["oci-layout"] = index, []byte(`{"imageLayoutVersion":"1.0.0"}`)
	content, err := archive(layout, 0o644)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.out, "millrace-"+a.version+"-image.tar"), content, 0o644)
}

// archive is a tar of files, in the order of their names and without times.
func archive(files map[string][]byte, mode int64) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(files[name])), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close() // it writes the end, which belongs to the bytes
	return b.Bytes(), err
}

// sums writes SHA256SUMS, as sha256sum does.
func (a *artifacts) sums() error {
	var list strings.Builder
	err := filepath.WalkDir(a.out, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "proxy" {
				return filepath.SkipDir
			}
			return nil
		}
		content, err := os.ReadFile(file)
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(content), d.Name())
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.out, "SHA256SUMS"), []byte(list.String()), 0o644)
}
