// Package identity is the directory of a host: whose it is, which life of it this is, and which directories
// of other hosts are admitted beside it.
//
// A host that has lost its directory has forgotten what it promised, so its id alone proves nothing. The
// directory names its log, and its log's random id is its incarnation. Other hosts record the incarnation
// and the life that they have met. They refuse a host with another incarnation, or with a life that does
// not continue the recorded life.
//
// Package host takes the directory when it opens (Enter, OpenLog, Take, EnterLife) and asks Admission about
// each connection. Package host/rescue writes directories while no host runs on them. Admission.mu guards
// what is known of other hosts. It is not held while a file is written. With it held, nothing is called but
// the argument of Presented.
//
// Reading order: files.go, identity.go, directory.go, lives.go, admission.go, join.go, leftovers.go.
package identity
