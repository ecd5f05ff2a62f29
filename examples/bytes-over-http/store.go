package main

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/millrace/millrace/host"
)

// store is the state machine: a map from keys to values, in memory. A command sets one key. After a start the
// host passes all commands again, from the first, so the map needs no file.
type store struct {
	mu      sync.RWMutex
	values  map[string][]byte
	bytes   int64  // of keys and values
	through uint64 // index of the last command in values
}

// encodePut returns the command that sets a key: the length of the key as a uvarint, the key, the value.
func encodePut(key string, value []byte) []byte {
	command := binary.AppendUvarint(nil, uint64(len(key)))
	return append(append(command, key...), value...)
}

func decodePut(command []byte) (key string, value []byte, err error) {
	n, size := binary.Uvarint(command)
	if size <= 0 || n > uint64(len(command)-size) {
		return "", nil, fmt.Errorf("the command is no put: its %d bytes do not hold the key that they announce", len(command))
	}
	key, value = string(command[size:size+int(n)]), command[size+int(n):]
	return key, value, nil
}

// Apply implements host.StateMachine. An error stops the group on this host; only a command that another
// program wrote into the log causes one.
func (s *store) Apply(entries []host.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		key, value, err := decodePut(e.Data)
		if err != nil {
			return fmt.Errorf("index %d: %w", e.Index, err)
		}
		if before, found := s.values[key]; found {
			s.bytes -= int64(len(key) + len(before))
		}
		s.values[key] = value // the state machine may keep Data
		s.bytes += int64(len(key) + len(value))
		s.through = e.Index
	}
	return nil
}

// get returns the value of a key, and the index of the last command that it reflects.
func (s *store) get(key string) (value []byte, found bool, through uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, found = s.values[key]
	return value, found, s.through
}

func (s *store) size() (keys int, bytes int64, through uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.values), s.bytes, s.through
}
