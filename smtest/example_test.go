package smtest_test

import (
	"context"
	"io"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/smtest"
)

// journal keeps lines. The result of each command is the length of the journal after it.
type journal struct{ text []byte }

func (j *journal) Apply(batch []millrace.Command[string], results []int) error {
	for i, c := range batch {
		j.text = append(append(j.text, c.Value...), '\n')
		results[i] = len(j.text)
	}
	return nil
}

func (j *journal) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(j.text[:len(j.text):len(j.text)]), nil // Apply appends, and changes nothing in it
}

func (j *journal) Restore(_ context.Context, r io.Reader) error {
	text, err := io.ReadAll(r)
	if err == nil {
		j.text = text
	}
	return err
}

func TestMachine(t *testing.T) {
	smtest.Run(t, func() millrace.Machine[string, int] {
		return millrace.InMemory(&journal{}, millrace.JSON[string]())
	}, "a", "", "two words", "a")
}
