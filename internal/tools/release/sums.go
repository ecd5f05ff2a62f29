package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// nestedSums is the go.sum of a nested module with the checksums of the library at the released version.
//
// They are computed from HEAD, before the tag exists. That is possible because a module's archive leaves out
// nested modules: nothing that the release changes is part of the library.
func (r *release) nestedSums(dir, archive, goMod string) (file, error) {
	path := filepath.Join(dir, "go.sum")
	text, err := os.ReadFile(filepath.Join(r.root, path))
	if err != nil {
		return file{}, err
	}
	var lines []string
	at := 0 // go.sum is sorted by module path first
	for line := range strings.Lines(string(text)) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path == "" || path == library {
			continue
		}
		lines = append(lines, strings.TrimSpace(line))
		if path < library {
			at = len(lines)
		}
	}
	lines = slices.Insert(lines, at,
		fmt.Sprintf("%s %s %s", library, r.version, archive),
		fmt.Sprintf("%s %s/go.mod %s", library, r.version, goMod))
	return file{path: path, text: []byte(strings.Join(lines, "\n") + "\n")}, nil
}

// librarySums returns the checksums of the library's archive and of its go.mod, as go.sum has them.
func (r *release) librarySums() (archive, goMod string, err error) {
	f, err := os.CreateTemp("", "millrace-release-*.zip")
	if err != nil {
		return "", "", err
	}
	defer os.Remove(f.Name())
	err = zip.CreateFromVCS(f, module.Version{Path: library, Version: r.version}, r.root, "HEAD", "")
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", "", fmt.Errorf("the archive of the library: %w", err)
	}
	if archive, err = dirhash.HashZip(f.Name(), dirhash.Hash1); err != nil {
		return "", "", err
	}
	text, err := os.ReadFile(filepath.Join(r.root, "go.mod"))
	if err != nil {
		return "", "", err
	}
	goMod, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
	return archive, goMod, err
}
