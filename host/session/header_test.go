package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawID(t *rapid.T) (id ID) {
	copy(id.Client[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "client"))
	id.Birth = time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "birth"))
	if id.IsZero() {
		id.Client[3] = 1
	}
	return id
}

// TestHeaderRoundTrip: what Put writes, Decode reads, for all headers; the command is a part of the entry,
// and the entry a part of the buffer.
func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Header
		if h.HasStamp = rapid.Bool().Draw(t, "stamped"); h.HasStamp {
			h.Stamp = time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "stamp"))
		}
		if h.HasMark = rapid.Bool().Draw(t, "marked"); h.HasMark {
			h.Mark.ID = drawID(t)
			h.Mark.Number = rapid.Uint64Range(1, math.MaxUint64).Draw(t, "number")
			h.Mark.Low = rapid.Uint64Range(1, h.Mark.Number).Draw(t, "low")
			if err := h.Mark.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		command := rapid.SliceOf(rapid.Byte()).Draw(t, "command")
		data := append(bytes.Repeat([]byte{0xaa}, Room), command...)
		for range 2 { // a command that is sent again
			entry := h.Put(data)
			if &entry[len(entry)-1] != &data[len(data)-1] || len(entry) > len(data) {
				t.Fatal("the entry is not the end of the buffer")
			}
			have, rest, err := Decode(entry)
			if err != nil || have != h || !bytes.Equal(rest, command) {
				t.Fatalf("put %+v, decoded %+v, %x, %v", h, have, rest, err)
			}
			if len(rest) > 0 && &rest[0] != &data[Room] {
				t.Fatal("the command was copied")
			}
		}
	})
}

func TestHeaderSizes(t *testing.T) {
	largest := Header{HasStamp: true, Stamp: maxTime, HasMark: true, Mark: Mark{ID: ID{Birth: maxTime}, Number: math.MaxUint64, Low: 1}}
	for want, h := range map[int]Header{
		1:  {},
		7:  {HasStamp: true, Stamp: time.Hour}, // a stamp within the first 18 hours
		28: {HasMark: true, Mark: Mark{ID: ID{Client: [16]byte{1}, Birth: 24 * time.Hour}, Number: 1e6, Low: 1e6}},
		55: largest,
	} {
		if have := len(h.Put(make([]byte, Room))); have != want {
			t.Errorf("%+v takes %d bytes, want %d", h, have, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { largest.Put(buffer[:]) }); n != 0 {
		t.Errorf("Put allocates %v times", n)
	}
}

var buffer [Room]byte

func TestDecodeRefuses(t *testing.T) {
	client := strings.Repeat("c", 16)
	for entry, want := range map[string]string{
		"":                               "the entry is empty",
		"\x20":                           "it begins with 0x20, version 2; this program knows version 1, so use a newer program",
		"hello":                          "it begins with 0x68, version 6; this program knows version 1, so use a newer program",
		"\x14":                           "it begins with 0x14, which has flags that this program does not know; use a newer program",
		"\x11":                           "its stamp is cut off or too large",
		"\x11\xff":                       "its stamp is cut off or too large",
		"\x11" + maxUvarint:              "its stamp is 18446744073709551615 ns, want at most 9223372036854775807",
		"\x12short":                      "its client id has 5 bytes, want 16",
		"\x12" + client:                  "its birth is cut off or too large",
		"\x12" + client + "\x01":         "its number is cut off or too large",
		"\x12" + client + "\x01\x01":     "its lowest unanswered number is cut off or too large",
		"\x12" + client + "\x01\x00\x00": "its number is 0, and the lowest unanswered one is 0 below it; want both at least 1",
		"\x12" + client + "\x01\x05\x05": "its number is 5, and the lowest unanswered one is 5 below it; want both at least 1",
		"\x12" + strings.Repeat("\x00", 17) + "\x05\x01": "its session has no id",
	} {
		h, command, err := Decode([]byte(entry))
		if err == nil || !errors.Is(err, ErrHeader) || err.Error() != ErrHeader.Error()+": "+want || h != (Header{}) || command != nil {
			t.Errorf("%q: %+v, %q, %v\nwant %s", entry, h, command, err, want)
		}
	}
}

const maxUvarint = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"

func FuzzDecode(f *testing.F) {
	h := Header{HasStamp: true, Stamp: 5, HasMark: true, Mark: Mark{ID: ID{Client: [16]byte{9}, Birth: 3}, Number: 7, Low: 2}}
	f.Add(h.Put(append(make([]byte, Room), "command"...)))
	f.Add([]byte{0x10, 'c'})
	f.Add([]byte("\x11" + maxUvarint))
	f.Fuzz(func(t *testing.T, entry []byte) {
		h, command, err := Decode(entry)
		if err != nil {
			return
		}
		if !bytes.HasSuffix(entry, command) || h.Stamp < 0 || h.HasMark && h.Mark.Validate() != nil {
			t.Fatalf("%x: %+v %x", entry, h, command)
		}
		again, same, err := Decode(h.Put(append(make([]byte, Room), command...)))
		if err != nil || again != h || !bytes.Equal(same, command) {
			t.Fatalf("%x: %+v, then %+v, %v", entry, h, again, err)
		}
	})
}

func TestIDText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := drawID(t)
		back, err := ParseID(id.String())
		if err != nil || back != id {
			t.Fatalf("%v came back as %v, %v", id, back, err)
		}
		text, err := json.Marshal(map[string]ID{"session": id})
		var read map[string]ID
		if err != nil || json.Unmarshal(text, &read) != nil || read["session"] != id {
			t.Fatalf("%s, %v: %v", text, err, read)
		}
	})
	client := "0102030405060708090a0b0c0d0e0f10"
	id, err := ParseID(client + ".60000000000")
	if err != nil || id.Birth != time.Minute || id.Client[15] != 16 {
		t.Error(id, err)
	}
	for text, want := range map[string]string{
		"":                             `session id "" has no dot, want 32 hexadecimal digits, a dot and the birth in nanoseconds`,
		"0102.5":                       `the client id of session id "0102.5" is not 32 hexadecimal digits`,
		client + "11.5":                `the client id of session id "` + client + `11.5" is not 32 hexadecimal digits`,
		client[:31] + "x.5":            `the client id of session id "` + client[:31] + `x.5" is not 32 hexadecimal digits`,
		client + ".-5":                 `the birth of session id "` + client + `.-5" is not a number of nanoseconds from 0 to 9223372036854775807`,
		client + ".1s":                 `the birth of session id "` + client + `.1s" is not a number of nanoseconds from 0 to 9223372036854775807`,
		client + ".05":                 `session id "` + client + `.05" is not written as its owner got it, want ` + client + `.5`,
		strings.ToUpper(client) + ".5": `session id "` + strings.ToUpper(client) + `.5" is not written as its owner got it, want ` + client + `.5`,
		strings.Repeat("z", 100):       `session id "` + strings.Repeat("z", 80) + `"… (100 bytes) has no dot, want 32 hexadecimal digits, a dot and the birth in nanoseconds`,
	} {
		var id ID
		if err := id.UnmarshalText([]byte(text)); err == nil || err.Error() != "millrace: "+want || !id.IsZero() {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestMarkValidate(t *testing.T) {
	id := ID{Client: [16]byte{1}, Birth: 5}
	for want, m := range map[string]Mark{
		"a command has number 4 in a session without an id; draw one with a random client id":                                     {Number: 4, Low: 1},
		"session 01000000000000000000000000000000.-5 was born before the group was founded":                                       {ID: ID{id.Client, -5}, Number: 1, Low: 1},
		"a command of session 01000000000000000000000000000000.5 has number 0, want at least 1":                                   {ID: id},
		"the lowest unanswered number of session 01000000000000000000000000000000.5 is 0, want 1 to 3, the number of the command": {ID: id, Number: 3},
		"the lowest unanswered number of session 01000000000000000000000000000000.5 is 4, want 1 to 3, the number of the command": {ID: id, Number: 3, Low: 4},
	} {
		if err := m.Validate(); err == nil || err.Error() != "millrace: "+want {
			t.Errorf("%+v: %v\nwant %s", m, err, want)
		}
	}
}
