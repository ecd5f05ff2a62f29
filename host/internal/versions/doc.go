// Package versions has which versions of a state machine the members of a group can do. Members ask each
// other (record.go). The leader asks all before it puts a version into the log. It takes only answers to that
// question, because a member may have another program than before (group.go).
//
// What a version does to commands is in package apply (version.go).
package versions
