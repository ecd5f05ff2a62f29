// Package golden reads and writes lists of named bytes that tests compare: a line is a name, a tab, and the
// bytes in hexadecimal. Of more than maxBytes it is their length and their SHA-256. Lines that begin with #
// are comments.
package golden

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

const maxBytes = 4 << 10

// Line is bytes with a name.
type Line struct {
	Name  string
	Bytes []byte // nil: they are many
	many  string // of many: what the line says
}

// Lines are the lines of a file.
type Lines []Line

// Text returns what the line says of the bytes.
func (l Line) Text() string {
	if l.Bytes == nil {
		return l.many
	}
	return textOf(l.Bytes)
}

// Is reports whether the line is of these bytes.
func (l Line) Is(b []byte) bool { return l.Text() == textOf(b) }

func textOf(b []byte) string {
	if len(b) > maxBytes {
		return fmt.Sprintf("%d bytes, SHA-256 %x", len(b), sha256.Sum256(b))
	}
	return hex.EncodeToString(b)
}

// Write writes a file.
func (l Lines) Write(path string) error {
	var b bytes.Buffer
	for _, line := range l {
		fmt.Fprintf(&b, "%s\t%s\n", line.Name, line.Text())
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// Parse reads the text of a file.
func Parse(text []byte) (all Lines, err error) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		name, is, ok := strings.Cut(line, "\t")
		l := Line{Name: name, many: is}
		if ok && !strings.Contains(is, " ") {
			l.Bytes, err = hex.DecodeString(is)
		}
		if !ok || err != nil {
			return nil, fmt.Errorf("golden: %.60q is no line with a name, a tab, and bytes: %v", line, err)
		}
		all = append(all, l)
	}
	return all, nil
}
