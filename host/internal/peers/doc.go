// Package peers is who the other hosts are, and where. Book has their addresses. Handshakes says whom this
// host has met in its life, who refuses it, and when each was heard. Records of addresses and settings are
// exchanged when hosts meet.
//
// Package host meets, greets and asks (host/handshakes.go, host/peers.go). The book has two locks: one is
// held while a host is added or forgotten, and Wiring is called; the other guards the addresses. A
// Handshake is atomics.
//
// Reading order: book.go, handshakes.go, addresses.go, settings.go.
package peers
