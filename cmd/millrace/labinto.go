package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report/picture"
	"github.com/millrace/millrace/cmd/internal/lab/report/plot"
	"github.com/millrace/millrace/cmd/internal/lab/report/view"
)

// The marks in a document between which lab report --into writes. What is outside them is the author's.
const (
	intoBegin = "<!-- lab report: begin -->\n"
	intoEnd   = "<!-- lab report: end -->\n"
)

// reportInto writes the tables of runs into a document, between its marks, with their pictures.
func reportInto(document, pictures string, archives []*archive.Archive) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return statusError{exitCannot, fmt.Errorf("--into: %w", err)}
	}
	begin, end := bytes.Index(text, []byte(intoBegin)), bytes.Index(text, []byte(intoEnd))
	if begin < 0 || end < begin {
		return statusError{exitCannot, fmt.Errorf("--into: %s has no line %q with a later line %q: write both where the tables belong", document, intoBegin[:len(intoBegin)-1], intoEnd[:len(intoEnd)-1])}
	}
	var b bytes.Buffer
	b.Write(text[:begin+len(intoBegin)])
	for _, of := range archives {
		b.WriteByte('\n')
		if err := view.Of(of).WriteMarkdown(&b); err != nil {
			return err
		}
		if err := linkPictures(&b, document, pictures, of); err != nil {
			return err
		}
	}
	b.WriteByte('\n')
	b.Write(text[end:])
	return archive.WriteFile(document, func(w io.Writer) error {
		_, err := w.Write(b.Bytes())
		return err
	})
}

// linkPictures writes the pictures of a run, under names that begin with its recipe, and the lines that show
// them.
func linkPictures(b *bytes.Buffer, document, dir string, of *archive.Archive) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, o := range picture.Of(of, plot.SVG).Outputs() {
		name := filepath.Join(dir, of.Run.Recipe+"-"+o.Name)
		if err := archive.WriteFile(name, o.Write); err != nil {
			return err
		}
		from, err := filepath.Abs(filepath.Dir(document))
		if err != nil {
			return err
		}
		to, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		link, err := filepath.Rel(from, to)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "\n![%s: %s](%s)\n", of.Run.Recipe, o.Name[:len(o.Name)-len(filepath.Ext(o.Name))], filepath.ToSlash(link))
	}
	return nil
}
