package membership

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/millrace/millrace/transport"
)

// Key is the SHA-256 of the public key with which a host proves its id (transport.Introduction.Key).
type Key [32]byte

// IsZero reports whether it is no key: the host has proved nothing.
func (k Key) IsZero() bool { return k == Key{} }

// MarshalText writes all of the key, in hexadecimal digits; no key is no text.
func (k Key) MarshalText() ([]byte, error) {
	if k.IsZero() {
		return nil, nil
	}
	return hex.AppendEncode(nil, k[:]), nil
}

// UnmarshalText reads what MarshalText has written.
func (k *Key) UnmarshalText(text []byte) error {
	var read Key
	if n, err := hex.Decode(read[:], text[:min(len(text), hex.EncodedLen(len(read)))]); err != nil || len(text) > hex.EncodedLen(len(read)) || n > 0 && n < len(read) {
		return fmt.Errorf("%w: %.80q is no key of %d hexadecimal digits", ErrFormat, text, hex.EncodedLen(len(read)))
	}
	*k = read
	return nil
}

func (k Key) String() string { return hex.EncodeToString(k[:8]) }

// Keys are the keys of a member: the key that it has or will have, and the key before, as long as it may
// still use that. Zeros follow.
//
// A certificate says who a host is and the CA vouches for it. The keys say which certificate of that CA is
// the member's. A certificate that was issued by mistake, or for another cluster that uses the same CA, is
// not.
type Keys [2]Key

func (k Keys) list() []Key {
	n := 0
	for n < len(k) && !k[n].IsZero() {
		n++
	}
	return k[:n]
}

// Has reports whether a key is one of them.
func (k Keys) Has(key Key) bool { return !key.IsZero() && slices.Contains(k[:], key) }

// HasAny reports whether they have a key in common.
func (k Keys) HasAny(other Keys) bool { return slices.ContainsFunc(other[:], k.Has) }

// Accepts reports whether a member with these keys may come with a key. A member without keys may come with
// any: it was founded, or added, without TLS.
func (k Keys) Accepts(key Key) bool { return k[0].IsZero() || k.Has(key) }

// KeyTaken says that host ID comes with the key of member Owner.
type KeyTaken struct{ ID, Owner uint64 }

func (k KeyTaken) Error() string {
	return fmt.Sprintf("the key of the certificate of host %d is that of member %d; make one for each host", k.ID, k.Owner)
}

// Rekey is an entry by which a member says with which key it will prove its id.
type Rekey struct {
	ID          uint64
	Incarnation transport.Incarnation
	Key         Key
}

// Rekey returns the roster after an entry that binds a member to a key, or why the entry changes nothing.
// The key before counts until the member says a second time that it uses the new one. Members that lag
// still know only the key before.
func (r *Roster) Rekey(index uint64, k Rekey) (*Roster, error) {
	m, ok := r.Member(k.ID)
	switch {
	case !ok || m.Incarnation != k.Incarnation:
		return nil, refuse("host %d with directory %v says which key it has, and is no member", k.ID, k.Incarnation)
	case k.Key.IsZero():
		return nil, refuse("member %d names no key", k.ID)
	case m.Keys == Keys{k.Key}:
		return nil, refuse("member %d has key %v already", k.ID, k.Key)
	}
	for _, other := range r.Members {
		if other.ID != k.ID && other.Keys.Has(k.Key) {
			return nil, refuse("%w", KeyTaken{k.ID, other.ID})
		}
	}
	keys := Keys{k.Key, m.Keys[0]}
	if m.Keys[0] == k.Key {
		keys = Keys{k.Key}
	}
	next := *r
	next.Version = index
	next.Members = slices.Clone(r.Members)
	for i := range next.Members {
		if next.Members[i].ID == k.ID {
			next.Members[i].Keys = keys
		}
	}
	return &next, nil
}

// Encode returns the bytes of a change of keys:
//
//	version │ id │ incarnation 16 B │ key 32 B
func (k Rekey) Encode() []byte {
	b := binary.AppendUvarint([]byte{version}, k.ID)
	b = append(b, k.Incarnation[:]...)
	return append(b, k.Key[:]...)
}

// DecodeRekey decodes a change of keys. It is canonical: Encode returns the same bytes.
func DecodeRekey(data []byte) (k Rekey, err error) {
	r := newReader(data)
	k.ID = r.uvarint(^uint64(0))
	copy(k.Incarnation[:], r.bytes(len(k.Incarnation)))
	copy(k.Key[:], r.bytes(len(k.Key)))
	return k, r.end("a change of keys")
}
