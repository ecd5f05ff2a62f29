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

// sums are the checksums of a module at the released version, as go.sum has them.
type sums struct{ module, archive, goMod string }

// nestedSums is the go.sum of a nested module with the checksums of what it requires at the released version.
//
// They are computed from HEAD, before the tag exists. That is possible because a module's archive leaves out
// nested modules: nothing that the release changes is part of the library. Of a nested module it changes two
// files, which are known.
func (r *release) nestedSums(dir string, required []sums) (file, error) {
	path := filepath.Join(dir, "go.sum")
	text, err := os.ReadFile(filepath.Join(r.root, path))
	if err != nil {
		return file{}, err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path != "" && !slices.ContainsFunc(required, func(of sums) bool { return of.module == path }) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	for _, of := range required {
		at := len(lines) // go.sum is sorted by module path first
		for i, line := range slices.Backward(lines) {
			if path, _, _ := strings.Cut(line, " "); path > of.module {
				at = i
			}
		}
		lines = slices.Insert(lines, at,
			fmt.Sprintf("%s %s %s", of.module, r.version, of.archive),
			fmt.Sprintf("%s %s/go.mod %s", of.module, r.version, of.goMod))
	}
	return file{path: path, text: []byte(strings.Join(lines, "\n") + "\n")}, nil
}

// librarySums returns the checksums of the library.
func (r *release) librarySums() (sums, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "go.mod"))
	if err != nil {
		return sums{}, err
	}
	return r.sumsOf(library, text, func(w io.Writer, m module.Version) error { return zip.CreateFromVCS(w, m, r.root, "HEAD", "") })
}

// nestedArchive returns the checksums of a nested module, as it is with the files of the release.
func (r *release) nestedArchive(dir string, changed ...file) (of sums, err error) {
	tree, err := os.MkdirTemp("", "millrace-release-")
	if err != nil {
		return of, err
	}
	defer os.RemoveAll(tree)
	paths, err := git(r.root, "ls-files", "--", dir)
	if err != nil {
		return of, err
	}
	list := strings.Split(paths, "\n")
	if !slices.Contains(list, dir+"/LICENSE") {
		list = append(list, "LICENSE") // the go command adds that of the repository
	}
	for _, path := range list {
		text, err := os.ReadFile(filepath.Join(r.root, path))
		if err != nil {
			return of, err
		}
		for _, f := range changed {
			if f.path == path {
				text = f.text
			}
		}
		to := filepath.Join(tree, strings.TrimPrefix(path, dir+"/"))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return of, err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return of, err
		}
	}
	return r.sumsOf(library+"/"+dir, changed[0].text, func(w io.Writer, m module.Version) error { return zip.CreateFromDir(w, m, tree) })
}

// sumsOf returns the checksums of a module whose go.mod and archive are given.
func (r *release) sumsOf(path string, goMod []byte, archive func(io.Writer, module.Version) error) (of sums, err error) {
	of.module = path
	f, err := os.CreateTemp("", "millrace-release-*.zip")
	if err != nil {
		return of, err
	}
	defer os.Remove(f.Name())
	err = archive(f, module.Version{Path: path, Version: r.version})
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return of, fmt.Errorf("the archive of %s: %w", path, err)
	}
	if of.archive, err = dirhash.HashZip(f.Name(), dirhash.Hash1); err != nil {
		return of, err
	}
	of.goMod, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(goMod)), nil })
	return of, err
}
