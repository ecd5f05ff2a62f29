package statemachine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bookmark is the place of a publication: the entry, the command in it, and the number of the publication
// with this command, from 0. Bookmarks ascend. They are the same on every member, and after a restart. The
// zero Bookmark is before all publications.
type Bookmark struct {
	Index       uint64
	Pos, Number uint32
}

// EndOf returns the bookmark behind all publications of entries through index. What a read has seen
// (ReadAt.Index) includes their effects.
func EndOf(index uint64) Bookmark { return Bookmark{index, math.MaxUint32, math.MaxUint32} }

// Compare returns -1, 0 or 1, as b is before c, is c, or is behind c.
func (b Bookmark) Compare(c Bookmark) int {
	return cmp.Or(cmp.Compare(b.Index, c.Index), cmp.Compare(b.Pos, c.Pos), cmp.Compare(b.Number, c.Number))
}

// String returns the bookmark as three numbers with dots, such as "17.0.2". ParseBookmark reads it.
func (b Bookmark) String() string { return fmt.Sprintf("%d.%d.%d", b.Index, b.Pos, b.Number) }

// ErrBadBookmark refuses a text that is no bookmark.
var ErrBadBookmark = errors.New("millrace: not a bookmark")

// ParseBookmark reads what String returns.
func ParseBookmark(text string) (b Bookmark, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return b, fmt.Errorf("%w: %.80q has %d parts, want three numbers with dots between them, such as 17.0.2", ErrBadBookmark, text, len(parts))
	}
	var numbers [3]uint64
	for i, bits := range [...]int{64, 32, 32} {
		if numbers[i], err = strconv.ParseUint(parts[i], 10, bits); err != nil {
			return b, fmt.Errorf("%w: part %d of %.80q is %.30q, want a number of %d bits", ErrBadBookmark, i+1, text, parts[i], bits)
		}
	}
	return Bookmark{numbers[0], uint32(numbers[1]), uint32(numbers[2])}, nil
}

// Publication is what a machine has published with a command. All subscribers of a host share Data: it must
// not be changed.
type Publication struct {
	At   Bookmark
	Data []byte
}

// ForgottenError says that publications behind a bookmark are not kept on this host any more.
type ForgottenError struct {
	After Bookmark // what the subscriber has
	First Bookmark // subscribe after this one: everything behind it is here
}

// ErrForgotten is what errors.Is finds in a ForgottenError.
var ErrForgotten = errors.New("millrace: publications are not kept any more")

func (e *ForgottenError) Error() string {
	return fmt.Sprintf("%v: this host has those behind %v, and the subscriber has those through %v; read the state, and subscribe after what the read has seen, or try another member", ErrForgotten, e.First, e.After)
}

// Unwrap makes errors.Is find ErrForgotten.
func (e *ForgottenError) Unwrap() error { return ErrForgotten }
