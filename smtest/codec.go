package smtest

import (
	"bytes"
	"fmt"
	"reflect"
)

// checkCodec: Append appends, and Decode neither changes the bytes that it is given nor keeps them. They
// belong to the log.
func (k *kit[C, R]) checkCodec() error {
	prefix := []byte("prefix")
	for i, want := range k.encoded {
		both, err := k.codec.Append(bytes.Clone(prefix), k.commands[i])
		if err != nil {
			return fmt.Errorf("the codec encodes %s at first, and then returns: %w", k.name(i), err)
		}
		if !bytes.HasPrefix(both, prefix) {
			return fmt.Errorf("Append of the codec does not append: for %s it replaces what was in dst", k.name(i))
		}
		if _, err := k.codec.Decode(both[len(prefix):]); err != nil {
			return fmt.Errorf("the codec cannot decode what it has appended to %d other bytes for %s: %w", len(prefix), k.name(i), err)
		}
		b := bytes.Clone(want)
		kept, err := k.codec.Decode(b)
		if err != nil {
			return fmt.Errorf("the codec cannot decode what it has encoded for %s of %d bytes: %w", k.name(i), len(b), err)
		}
		if !bytes.Equal(b, want) {
			return fmt.Errorf("Decode of the codec changes the bytes of %s which belong to the log", k.name(i))
		}
		fresh, err := k.decode(i)
		if err != nil {
			return err
		}
		if !same(kept, fresh) {
			continue // such as a function: it cannot be compared
		}
		before := show(kept)
		scribble(b)
		if !same(kept, fresh) {
			return fmt.Errorf("Decode of the codec keeps bytes of its argument: %s became %s when the bytes were used for something else; Decode must copy what it keeps (bytes.Clone)", before, show(kept))
		}
	}
	return nil
}

// scribble overwrites bytes that do not belong to anyone any more.
func scribble(b []byte) {
	for i := range b {
		b[i] ^= 0xa5
	}
}

// checkDecoded: a machine that gets commands as they were given to the codec, and one that gets what the
// codec returns, do the same. So nothing that matters is lost on the way. The values themselves may
// differ, as an empty slice and nil do.
func (k *kit[C, R]) checkDecoded() error {
	reference, err := k.replay(setup{name: "with decoded commands"})
	if err != nil {
		return err
	}
	given, err := k.replay(setup{name: "with the commands as they were before the codec", original: true})
	if err != nil {
		return err
	}
	err = k.compare(reference, given)
	if err == nil {
		return nil
	}
	for i := range k.encoded {
		c, err := k.decode(i)
		if err != nil {
			return err
		}
		if !same(c, k.commands[i]) {
			return fmt.Errorf("the codec loses something of a command: %s comes back as %s, and the machine sees the difference (are the fields exported?)", k.name(i), show(c))
		}
	}
	return fmt.Errorf("the machine treats commands that were encoded and decoded in another way than the same commands before: %w", err)
}

// same reports whether two values are equal as far as a reader of them can see.
func same(a, b any) bool {
	return reflect.DeepEqual(a, b) || fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) // such as NaN
}
