package crashfs

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// An image is described twice: in words, for a person who looks for the missing sync, and by a code from
// which Replay builds it again. The words are made on demand, as a laboratory describes almost none of its
// images.

// Description says which of the un-synced changes an image has. It costs little until it is printed.
type Description struct {
	fork   *fork
	choice choice
}

// Code names the image for Replay: one version for each change, in 0-9a-z, or in decimal with commas if there
// are more than 36 versions.
func (d Description) Code() string {
	wide := slices.ContainsFunc(d.choice, func(v uint16) bool { return v > 35 })
	var b []byte
	for i, v := range d.choice {
		switch {
		case !wide:
			b = strconv.AppendUint(b, uint64(v), 36)
		default:
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(v), 10)
		}
	}
	if wide && len(d.choice) == 1 {
		b = append(b, ',')
	}
	if len(b) == 0 {
		return "-"
	}
	return string(b)
}

// Survived returns the changes that the image has, one line each, in the same order as Lost.
func (d Description) Survived() []string { return d.list(func(v, n int) bool { return v > 0 }) }

// Lost returns the changes that the image does not have, or not in their newest version.
func (d Description) Lost() []string { return d.list(func(v, n int) bool { return v < n }) }

func (d Description) list(which func(version, newest int) bool) []string {
	var lines []string
	for i := range d.choice {
		t := &d.fork.changes[i]
		if v, n := int(d.choice[i]), t.versions(); which(v, n) && !(t.stale && v == 0) {
			lines = append(lines, d.fork.describe(t, v))
		}
	}
	return lines
}

// String describes the image in one line: what survived, how much was lost, and the code.
func (d Description) String() string {
	if len(d.choice) == 0 {
		return "everything is durable (code -)"
	}
	survived := d.Survived()
	what := strings.Join(survived, ", ")
	if what == "" {
		what = "nothing"
	}
	return fmt.Sprintf("survived: %s; lost or older: %d of %d (code %s)", what, len(d.Lost()), len(d.choice), d.Code())
}

func (f *fork) describe(t *change, v int) string {
	of := ""
	if n := t.versions(); n > 1 {
		of = fmt.Sprintf(" (version %d of %d)", v, n)
	}
	switch {
	case len(t.names) == 2:
		return fmt.Sprintf("rename of %s to %s", t.names[1].name, path.Base(t.names[0].name))
	case len(t.names) == 1 && t.names[0].file < 0:
		return "removal of " + t.names[0].name
	case len(t.names) == 1:
		return "creation of " + t.names[0].name
	case t.stale:
		return "stale bytes in the space that " + f.files[t.file].name + " gained"
	case t.sizes != nil:
		size := f.files[t.file].image.size
		if v > 0 {
			size = t.sizes[v-1]
		}
		return fmt.Sprintf("length %d of %s%s", size, f.files[t.file].name, of)
	}
	return fmt.Sprintf("sector %d of %s%s", t.sector, f.files[t.file].name, of)
}

// parse decodes a code.
func (f *fork) parse(code string) (choice, error) {
	var digits []string
	base := 36
	switch {
	case code == "-":
	case strings.Contains(code, ","):
		digits, base = strings.Split(strings.TrimSuffix(code, ","), ","), 10
	default:
		digits = strings.Split(code, "")
	}
	if len(digits) != len(f.changes) {
		return nil, fmt.Errorf("crashfs: the code %q is for a disk with %d un-synced changes, this one has %d; replay the same calls first", code, len(digits), len(f.changes))
	}
	c := make(choice, len(digits))
	for i, s := range digits {
		v, err := strconv.ParseUint(s, base, 16)
		if n := f.changes[i].versions(); err != nil || v > uint64(n) {
			return nil, fmt.Errorf("crashfs: version %q in the code %q does not exist: %s has versions 0 to %d", s, code, f.describe(&f.changes[i], 0), n)
		}
		c[i] = uint16(v)
	}
	return c, nil
}
