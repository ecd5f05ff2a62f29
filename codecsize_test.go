package millrace_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"pgregory.net/rapid"
)

// sizedOnly is a codec that knows its size and must not encode what is too large.
type sizedOnly struct{ encoded *int }

func (c sizedOnly) LeastBytes(n int) int { return n }

func (c sizedOnly) Append(dst []byte, n int) ([]byte, error) {
	*c.encoded++
	return append(dst, make([]byte, n)...), nil
}

func (c sizedOnly) Decode(b []byte) (int, error) { return len(b), nil }

// A command that a codec knows to be too large is not encoded, and one of another codec is not decoded.
func TestTooLargeIsNotEncoded(t *testing.T) {
	encoded := 0
	c := alone(t)
	c.MaxCommandBytes = 1000
	n := open(t, c, millrace.InMemory[int, int64](&nilMachine[int]{}, sizedOnly{&encoded}))
	if _, err := n.Propose(t.Context(), math.MaxInt); !errors.Is(err, millrace.ErrTooLarge) || !strings.Contains(err.Error(), "9223372036854775807 bytes, at most 1000 (MaxCommandBytes)") {
		t.Error(err)
	}
	if _, err := n.Propose(t.Context(), 1000); err != nil {
		t.Errorf("a command as large as can be: %v", err)
	}
	if encoded != 1 {
		t.Errorf("%d commands were encoded, want 1", encoded)
	}
	if refused := n.Metrics().Proposals.Refused.TooLarge; refused != 1 {
		t.Errorf("%d commands count as too large, want 1", refused)
	}
}

type inner struct {
	Note string `json:"note,omitempty"`
	List []int16
}

type outer struct {
	Name   string
	Bytes  []byte
	Left   string   `json:"-"`
	First  string   `json:"Second"`
	Second string   // is not encoded: First has its name
	Gone   [100]int `json:",omitzero"`
	Inner  *inner
	Any    any
	Map    map[string]int8
	At     time.Time
	Number json.Number
	Raw    json.RawMessage
}

// LeastBytes never says more than Append makes, and most of what is large.
func TestLeastBytesOfJSON(t *testing.T) {
	c := millrace.JSON[outer]()
	least := c.(millrace.SizedCodec[outer]).LeastBytes
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringN(0, 50, 200)
		v := outer{
			Name: text.Draw(rt, "name"), Bytes: rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(rt, "bytes"), Left: text.Draw(rt, "left"),
			First: text.Draw(rt, "first"), Second: text.Draw(rt, "second"), Map: map[string]int8{text.Draw(rt, "key"): 1}, Raw: json.RawMessage("1"),
		}
		if rapid.Bool().Draw(rt, "inner") {
			v.Inner = &inner{Note: text.Draw(rt, "note"), List: rapid.SliceOfN(rapid.Int16(), 0, 200).Draw(rt, "list")}
			v.Any = []string{text.Draw(rt, "any")}
		}
		b, err := c.Append(nil, v)
		if err != nil {
			rt.Fatal(err)
		}
		if n := least(v); n > len(b) {
			rt.Fatalf("at least %d bytes, and it has %d: %s", n, len(b), b)
		}
	})
	for _, v := range []outer{{Name: strings.Repeat("x", 1<<20)}, {Bytes: make([]byte, 1<<20)}, {Inner: &inner{List: make([]int16, 1<<20)}}, {Any: strings.Repeat("x", 1<<20)}} {
		if n := least(v); n < 1<<20 {
			t.Errorf("a large value is said to have at least %d bytes", n)
		}
	}
	for codec, n := range map[any]int{
		millrace.Bytes().(millrace.SizedCodec[[]byte]).LeastBytes(make([]byte, 9)):        9,
		millrace.BytesInPlace().(millrace.SizedCodec[[]byte]).LeastBytes(make([]byte, 8)): 8,
		millrace.Binary[int32]().(millrace.SizedCodec[int32]).LeastBytes(1):               4,
	} {
		if !reflect.DeepEqual(codec, n) {
			t.Errorf("at least %v bytes, want %d", codec, n)
		}
	}
}

// What can never work is refused by Open: a type that encoding/json encodes in no case, and a machine that is
// a nil pointer.
func TestOpenRefusesWhatNeverWorks(t *testing.T) {
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := millrace.Open(t.Context(), alone(t), millrace.InMemory[func(), int64](&nilMachine[func()]{}, millrace.JSON[func()]()), quiet())
	refused(err, "millrace: JSON[func()]: encoding/json encodes no value of type func()")
	type withChannel struct {
		Name string
		Done struct{ C chan int }
	}
	_, err = millrace.Open(t.Context(), alone(t), millrace.InMemory[withChannel, int64](&nilMachine[withChannel]{}, millrace.JSON[withChannel]()), quiet())
	refused(err, "encodes no value of type chan int; leave it out")
	type leftOut struct {
		Name string
		F    func()  `json:"-"`
		G    func()  `json:",omitzero"`
		H    *func() // null
	}
	open(t, alone(t), millrace.InMemory[leftOut, int64](&nilMachine[leftOut]{}, millrace.JSON[leftOut]()))
	var machine *nilMachine[int64]
	_, err = millrace.Open(t.Context(), alone(t), millrace.InMemory[int64, int64](machine, millrace.Binary[int64]()), quiet())
	refused(err, "millrace: the state machine is a nil *millrace_test.nilMachine[int64], so its first call would panic")
}
