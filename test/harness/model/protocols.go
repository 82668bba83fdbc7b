package model

import "sync/atomic"

// object is one of JSON.
type object = map[string]any

// serial numbers the calls of tools.
var serial atomic.Int64

func callID() string { return "call_" + string(rune('a'+serial.Add(1)%26)) + encode(serial.Load()) }

// messages is an answer of Anthropic's Messages API.
func messages(s Step, model string) spoken {
	block, reason := object{"type": "text", "text": s.Text}, "end_turn"
	start, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": s.Text}
	if s.Tool != "" {
		id := callID()
		reason = "tool_use"
		block = object{"type": "tool_use", "id": id, "name": s.Tool, "input": s.Input}
		start = object{"type": "tool_use", "id": id, "name": s.Tool, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": encode(s.Input)}
	}
	usage := object{"input_tokens": 1, "output_tokens": 1}
	message := object{"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []any{}, "stop_reason": nil, "usage": usage}
	whole := object{"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []any{block}, "stop_reason": reason, "usage": usage}
	return spoken{Whole: whole, Events: []event{
		{"message_start", object{"type": "message_start", "message": message}},
		{"content_block_start", object{"type": "content_block_start", "index": 0, "content_block": start}},
		{"content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": delta}},
		{"content_block_stop", object{"type": "content_block_stop", "index": 0}},
		{"message_delta", object{"type": "message_delta", "delta": object{"stop_reason": reason}, "usage": object{"output_tokens": 1}}},
		{"message_stop", object{"type": "message_stop"}},
	}}
}

// responses is an answer of OpenAI's Responses API.
func responses(s Step, model string) spoken {
	item := object{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []any{object{"type": "output_text", "text": s.Text, "annotations": []any{}}}}
	if s.Tool != "" {
		item = object{"id": "fc_1", "type": "function_call", "call_id": callID(), "name": s.Tool, "arguments": encode(s.Input), "status": "completed"}
		if text, is := s.Input[freeForm].(string); is {
			item = object{"id": "ct_1", "type": "custom_tool_call", "call_id": callID(), "name": s.Tool, "input": text, "status": "completed"}
		}
	}
	usage := object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0}}
	begun := object{"id": "resp_1", "object": "response", "status": "in_progress", "model": model, "output": []any{}}
	done := object{"id": "resp_1", "object": "response", "status": "completed", "model": model, "output": []any{item}, "usage": usage}
	return spoken{Whole: done, Events: []event{
		{"response.created", object{"type": "response.created", "sequence_number": 0, "response": begun}},
		{"response.output_item.added", object{"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item}},
		{"response.output_item.done", object{"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item}},
		{"response.completed", object{"type": "response.completed", "sequence_number": 3, "response": done}},
	}}
}

// freeForm is the only key of the input of a tool that takes a text, and no JSON (a custom tool of
// the Responses API).
const freeForm = "_text"

// FreeForm is the input of such a tool.
func FreeForm(text string) map[string]any { return object{freeForm: text} }

// completions is an answer of OpenAI's Chat Completions API.
func completions(s Step, model string) spoken {
	message, reason := object{"role": "assistant", "content": s.Text}, "stop"
	delta := message
	if s.Tool != "" {
		reason = "tool_calls"
		call := object{"id": callID(), "type": "function", "function": object{"name": s.Tool, "arguments": encode(s.Input)}}
		message = object{"role": "assistant", "content": nil, "tool_calls": []any{call}}
		call = object{"index": 0, "id": call["id"], "type": "function", "function": call["function"]}
		delta = object{"role": "assistant", "tool_calls": []any{call}}
	}
	usage := object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
	whole := object{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "usage": usage, "choices": []any{object{"index": 0, "message": message, "finish_reason": reason}}}
	chunk := func(choice object) object {
		return object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": []any{choice}}
	}
	last := chunk(object{"index": 0, "delta": object{}, "finish_reason": reason})
	last["usage"] = usage
	return spoken{Whole: whole, End: "[DONE]", Events: []event{
		{"", chunk(object{"index": 0, "delta": delta, "finish_reason": nil})},
		{"", last},
	}}
}

// gemini is an answer of Gemini's generateContent.
func gemini(s Step) spoken {
	part := object{"text": s.Text}
	if s.Tool != "" {
		part = object{"functionCall": object{"id": callID(), "name": s.Tool, "args": s.Input}}
	}
	whole := object{
		"candidates":    []any{object{"index": 0, "content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP"}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}, "modelVersion": "test",
	}
	return spoken{Whole: whole, Events: []event{{"", whole}}}
}
