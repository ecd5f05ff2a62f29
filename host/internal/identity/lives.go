package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/transport"
)

// lives is what a directory knows of its own lives, in lives.json: of the number that was drawn for each of
// the last transport.MaxPast its low half. A host tells others of them (transport.Introduction.Past), so that
// they recognise a copy or an old backup however often it has started since: who has heard life 5 of a
// directory refuses each later life that says something else of life 5.
//
// Invariant: what the file says of a life is true, or 0, which stands for not known. So a directory is never
// refused for it, as long as it is the only one. The file is written before any host hears of the life. If it
// is lost, or the disk has no space for it, other hosts have the generation to go by.
type lives struct {
	Version     int                   `json:"version"`
	Incarnation transport.Incarnation `json:"incarnation"`
	// Generation is that of the last of Lives; the one before it is one less, and so on.
	Generation uint64   `json:"generation"`
	Lives      []uint32 `json:"lives"`
}

const (
	livesFile    = "lives.json"
	livesVersion = 1
)

// begin adds a life, and returns those before it.
func (l *lives) begin(generation uint64, life uint32) (past []uint32) {
	switch missing := generation - l.Generation - 1; {
	case len(l.Lives) == 0:
	case generation <= l.Generation: // the log has forgotten how far it had counted: two lives have this generation
		l.Lives, life = nil, 0
	case missing >= transport.MaxPast:
		l.Lives = nil
	default:
		l.Lives = append(l.Lives, make([]uint32, missing)...)
	}
	past = slices.Clone(l.Lives[max(0, len(l.Lives)-transport.MaxPast):])
	l.Generation, l.Lives = generation, append(l.Lives, life)
	l.Lives = l.Lives[max(0, len(l.Lives)-transport.MaxPast):]
	return past
}

// EnterLife adds a life to the lives that the directory knows of, durably, and returns the lives before it.
func (d *Directory) EnterLife(generation, life uint64, logger *slog.Logger) (past []uint32, err error) {
	if d.settings.InMemory { // each life has another directory, for the others
		return nil, nil
	}
	var l lives
	switch _, err := ReadFile(d.fs, filepath.Join(d.settings.Dir, livesFile), &l); {
	case errors.Is(err, ErrDamaged):
		logger.Warn("it is not known any more which lives this directory had, so other hosts may not recognise an old copy of it", "err", err)
		l = lives{}
	case err != nil:
		return nil, err
	case l.Version > livesVersion:
		return nil, fmt.Errorf("millrace: %s has version %d, this program supports only version %d; start the program that wrote it", filepath.Join(d.settings.Dir, livesFile), l.Version, livesVersion)
	case l.Version != livesVersion, l.Incarnation != d.identity.Incarnation:
		l = lives{}
	}
	past = l.begin(generation, uint32(life))
	l.Version, l.Incarnation = livesVersion, d.identity.Incarnation
	switch err := WriteFile(d.fs, d.settings.Dir, livesFile, l); {
	case IsFull(err): // a host must start on a full disk
		logger.Warn("the disk is full; other hosts may not recognise a copy of this directory that is made now", "err", err)
	case err != nil:
		return nil, err
	}
	return past, nil
}
