package raftpb

import "strconv"

// The names of the enums, in the tables that generated code would have. Golden scripts print them.

// EntryType_name and EntryType_value name the entry types.
var (
	EntryType_name = map[int32]string{
		0: "EntryNormal",
		1: "EntryConfChange",
		2: "EntryConfChangeV2",
	}
	EntryType_value = inverse(EntryType_name)
)

// MessageType_name and MessageType_value name the message types.
var (
	MessageType_name = map[int32]string{
		0:  "MsgHup",
		1:  "MsgBeat",
		2:  "MsgProp",
		3:  "MsgApp",
		4:  "MsgAppResp",
		5:  "MsgVote",
		6:  "MsgVoteResp",
		7:  "MsgSnap",
		8:  "MsgHeartbeat",
		9:  "MsgHeartbeatResp",
		10: "MsgUnreachable",
		11: "MsgSnapStatus",
		12: "MsgCheckQuorum",
		13: "MsgTransferLeader",
		14: "MsgTimeoutNow",
		15: "MsgReadIndex",
		16: "MsgReadIndexResp",
		17: "MsgPreVote",
		18: "MsgPreVoteResp",
		19: "MsgStorageAppend",
		20: "MsgStorageAppendResp",
		21: "MsgStorageApply",
		22: "MsgStorageApplyResp",
		23: "MsgForgetLeader",
	}
	MessageType_value = inverse(MessageType_name)
)

// ConfChangeTransition_name and ConfChangeTransition_value name the transitions.
var (
	ConfChangeTransition_name = map[int32]string{
		0: "ConfChangeTransitionAuto",
		1: "ConfChangeTransitionJointImplicit",
		2: "ConfChangeTransitionJointExplicit",
	}
	ConfChangeTransition_value = inverse(ConfChangeTransition_name)
)

// ConfChangeType_name and ConfChangeType_value name the kinds of membership change.
var (
	ConfChangeType_name = map[int32]string{
		0: "ConfChangeAddNode",
		1: "ConfChangeRemoveNode",
		2: "ConfChangeUpdateNode",
		3: "ConfChangeAddLearnerNode",
	}
	ConfChangeType_value = inverse(ConfChangeType_name)
)

func (t EntryType) String() string            { return enumName(EntryType_name, int32(t)) }
func (t MessageType) String() string          { return enumName(MessageType_name, int32(t)) }
func (t ConfChangeTransition) String() string { return enumName(ConfChangeTransition_name, int32(t)) }
func (t ConfChangeType) String() string       { return enumName(ConfChangeType_name, int32(t)) }

// enumName returns the name of v, or its number in digits if it has no name, as generated code does.
func enumName(names map[int32]string, v int32) string {
	if name, ok := names[v]; ok {
		return name
	}
	return strconv.Itoa(int(v))
}

func inverse(names map[int32]string) map[string]int32 {
	values := make(map[string]int32, len(names))
	for v, name := range names {
		values[name] = v
	}
	return values
}
