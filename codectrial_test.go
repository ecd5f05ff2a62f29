package millrace_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

// A command that the codec has encoded and cannot decode would halt the machine of every member, at every
// start. It is not proposed.
func TestCommandThatDoesNotComeBackIsNotProposed(t *testing.T) {
	type operation struct{ By any }
	type command struct{ Op interface{ isOperation() } }
	refused := func(t *testing.T, err error, why string) {
		t.Helper()
		if err == nil || millrace.MayHaveCommitted(err) || !strings.Contains(err.Error(), "not proposed") || !strings.Contains(err.Error(), why) {
			t.Errorf("Propose: %v, want it not proposed because of %q", err, why)
		}
	}
	t.Run("interface", func(t *testing.T) {
		n := open(t, alone(t), millrace.InMemory(&anything[command]{}, millrace.JSON[command]()))
		_, err := n.Propose(t.Context(), command{added{By: 1}})
		refused(t, err, "cannot unmarshal object into Go struct field command.Op")
		if _, err := n.Propose(t.Context(), command{}); err != nil { // null comes back
			t.Error(err)
		}
	})
	t.Run("any", func(t *testing.T) {
		n := open(t, alone(t), millrace.InMemory(&anything[operation]{}, millrace.JSON[operation]()))
		if _, err := n.Propose(t.Context(), operation{added{By: 1}}); err != nil {
			t.Error(err)
		}
	})
	t.Run("own codec", func(t *testing.T) {
		n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Codec[[]byte](forgetful{millrace.Bytes()})))
		_, err := n.Submit([]byte("x"))
		refused(t, err, "forgotten")
	})
	t.Run("panic", func(t *testing.T) {
		n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Codec[[]byte](panicky{millrace.Bytes()})))
		_, err := n.Commit(t.Context(), []byte("x"))
		refused(t, err, "Decode panicked: not today")
	})
}

type added struct{ By int }

func (added) isOperation() {}

// anything is a machine that takes all commands.
type anything[C any] struct{ counter }

func (*anything[C]) Apply([]millrace.Command[C], []uint64) error { return nil }

type panicky struct{ millrace.Codec[[]byte] }

func (panicky) Decode([]byte) ([]byte, error) { panic("not today") }

// TestWhichCodecsAreSure: the trial is spared only where nothing that was encoded can fail to come back.
func TestWhichCodecsAreSure(t *testing.T) {
	type leaf struct {
		A int
		B string
		c any // not encoded
		D []map[string]*float64
		E [3]uint8
		F map[int64]bool
		G any `json:"-"`
	}
	type list struct{ Next *list } // encoding/json decodes 10000 levels, and encodes more
	type embeds struct{ *leaf }
	_ = leaf{c: nil}
	for _, c := range []struct {
		name  string
		codec any
		sure  bool
	}{
		{"Bytes", millrace.Bytes(), true},
		{"BytesInPlace", millrace.BytesInPlace(), true},
		{"Binary of a number", millrace.Binary[int64](), true},
		{"Binary of a type with methods", millrace.Binary[time.Time](), false},
		{"JSON of a struct", millrace.JSON[leaf](), true},
		{"JSON of pointers and slices", millrace.JSON[[]*leaf](), true},
		{"JSON of an interface", millrace.JSON[any](), false},
		{"JSON of a field that is an interface", millrace.JSON[struct{ A error }](), false},
		{"JSON of an embedded pointer to a type that is not exported", millrace.JSON[embeds](), false},
		{"JSON of a type that contains itself", millrace.JSON[list](), false},
		{"JSON of a marshaler", millrace.JSON[time.Time](), false},
		{"JSON of raw JSON", millrace.JSON[json.RawMessage](), false},
		{"JSON of a map of texts", millrace.JSON[map[text]int](), false},
		{"JSON of a quoted field", millrace.JSON[struct {
			A string `json:",string"`
		}](), false},
		{"JSON of a field that is called -", millrace.JSON[struct {
			//lint:ignore SA5008 encoding/json takes it, and calls the field -
			A text `json:"-,"`
		}](), false},
	} {
		s, ok := c.codec.(millrace.SureCodec)
		if is := ok && s.Sure(); is != c.sure {
			t.Errorf("%s is sure: %t, want %t", c.name, is, c.sure)
		}
	}
}

type text string

func (*text) UnmarshalText([]byte) error { return errors.New("never") }

// A codec that says that it is sure is believed: the trial is spared.
func TestSureCodecIsNotTried(t *testing.T) {
	decoded := 0
	n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Codec[[]byte](certain{millrace.Bytes(), &decoded})))
	if _, err := n.Propose(t.Context(), []byte("x")); err != nil || decoded != 1 {
		t.Errorf("%v, decoded %d times, want once, to be applied", err, decoded)
	}
}

type certain struct {
	millrace.Codec[[]byte]
	decoded *int
}

func (certain) Sure() bool { return true }

func (c certain) Decode(b []byte) ([]byte, error) { *c.decoded++; return c.Codec.Decode(b) }

// BenchmarkCodecTrial is what decoding a command on its way in costs, beside encoding it.
func BenchmarkCodecTrial(b *testing.B) {
	type command struct {
		Key, Value string
		Version    uint64
		Tags       []string
	}
	v, c := command{"some/key", strings.Repeat("v", 64), 7, []string{"a", "b"}}, millrace.JSON[command]()
	encoded, err := c.Append(nil, v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := c.Append(nil, v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := c.Decode(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}
