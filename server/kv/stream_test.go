package kv

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/server/engine"
)

// record is a key of a stream, with what it claims of its value.
func record(prefix string, main, sub, claims uint64, value string) []byte {
	b := binary.AppendUvarint(nil, uint64(len(prefix))+1)
	b = append(b, prefix...)
	b = binary.AppendUvarint(binary.AppendUvarint(b, main), sub)
	return append(binary.AppendUvarint(b, claims), value...)
}

// A stream of another member cannot make this one panic, or take memory for what it only claims.
func TestStreamsOfOthers(t *testing.T) {
	long := strings.Repeat("a long value ", 20_000)
	for name, c := range map[string]struct {
		records []byte
		want    string // "": it is read
	}{
		"whole":          {records: record("l1", 3, 2, uint64(len(long)), long)},
		"no value":       {records: record("z", 0, 0, 0, "")},
		"no prefix":      {record("", 0, 0, 1, "x"), "in no space"},
		"another space":  {record("\xff", 0, 0, 1, "x"), "in no space"},
		"keys, of files": {record("k1", 1, 0, 1, "x"), "in no space"},
		"revision":       {record("l1", math.MaxInt64+1, 0, 1, "x"), "out of bounds"},
		"place":          {record("l1", 1, math.MaxUint32+1, 1, "x"), "out of bounds"},
		"a claim":        {record("l1", 1, 0, maxRecordBytes, "x"), "unexpected EOF"},
		"a lie":          {record("l1", 1, 0, math.MaxUint64, "x"), "at most"},
	} {
		var have []byte
		stream := append(append([]byte(streamFormat), c.records...), 0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := readStream(t.Context(), bytes.NewReader(stream), exactSpaces, func(_ engine.Key, v []byte) { have = v })
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 64<<20 {
			t.Errorf("%s: a stream of %d bytes has taken %d bytes", name, len(stream), after.TotalAlloc-before.TotalAlloc)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name == "whole" && string(have) != long {
			t.Errorf("%s: %d bytes of %d", name, len(have), len(long))
		}
	}
}
