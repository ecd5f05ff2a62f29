package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// WriteTable writes a text above a table, the rows, and texts below.
func WriteTable(w io.Writer, above func(*strings.Builder), rows func(*tabwriter.Writer), below ...func(*strings.Builder)) error {
	var b strings.Builder
	above(&b)
	tw := NewColumns(&b)
	rows(tw)
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, write := range below {
		write(&b)
	}
	_, err := io.WriteString(w, trailingSpace.ReplaceAllString(b.String(), ""))
	return err
}

var trailingSpace = regexp.MustCompile(`(?m) +$`)

// NewColumns returns a writer that aligns columns of numbers to the right. Names are padded by hand to stand
// on the left.
func NewColumns(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// Title is the first words of a table; it says if the run was cut short.
func Title(command string, partial bool) string {
	if partial {
		return command + " (PARTIAL: not every point was measured)"
	}
	return command
}

// WriteMachine writes the line that says where a run was made, and an empty one. extra comes before the load
// average.
func WriteMachine(b *strings.Builder, e lab.Environment, extra string) {
	fmt.Fprintf(b, "%s, %s, kernel %s, %s in %s, %s, %sload average %.2f\n\n",
		Plural(e.Cores, "core"), OrUnknown(e.CPU), OrUnknown(e.Kernel), OrUnknown(e.Filesystem), e.Dir, e.GoVersion, extra, e.Load1)
}

// WriteWarnings writes why a reader should not trust the figures of a run.
func WriteWarnings(b *strings.Builder, e lab.Environment) {
	if e.Filesystem == lab.Tmpfs {
		fmt.Fprintf(b, "WARNING: %s is in memory (tmpfs): its fsync costs nothing and keeps nothing. Choose a directory on a real disk.\n", e.Dir)
	}
	if e.Load1 > float64(e.Cores)/2 {
		fmt.Fprintf(b, "WARNING: the machine was busy before the run (load average %.2f on %s).\n", e.Load1, Plural(e.Cores, "core"))
	}
}
