package service

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Place is a directory of members with the bytes that its files take on the disk.
type Place struct {
	Name  string // below the directory of a member's data
	Bytes int64
}

// places returns what is below the directories of members, in order of the bytes. A file with several names
// counts once, under the name that comes last: for Millrace in its state, and not in a snapshot.
func places(dirs []string) (all []Place, err error) {
	files, sizes := map[uint64]string{}, map[string]int64{}
	for _, dir := range dirs {
		err = errors.Join(err, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return ignoreRemoved(err)
			}
			info, err := d.Info()
			if err != nil {
				return ignoreRemoved(err)
			}
			name := placeOf(dir, path)
			inode, bytes := fileOf(info)
			if before, counted := files[inode]; counted && inode != 0 {
				sizes[before] -= bytes
			}
			files[inode] = name
			sizes[name] += bytes
			return nil
		}))
	}
	for name, bytes := range sizes {
		if bytes > 0 {
			all = append(all, Place{name, bytes})
		}
	}
	slices.SortFunc(all, func(a, b Place) int { return int(b.Bytes>>10 - a.Bytes>>10) })
	return all, err
}

// placeDepth is how many directories the name of a place has.
const placeDepth = 3

func placeOf(dir, path string) string {
	name, _ := filepath.Rel(dir, filepath.Dir(path))
	parts := strings.Split(filepath.ToSlash(name), "/")
	return strings.Join(parts[:min(len(parts), placeDepth)], "/")
}

// ignoreRemoved takes a file that a member has removed meanwhile for none.
func ignoreRemoved(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// total sums places up.
func total(all []Place) (bytes int64) {
	for _, p := range all {
		bytes += p.Bytes
	}
	return bytes
}

// size writes bytes for a reader.
func size(bytes int64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
