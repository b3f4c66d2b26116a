// Plans a trip with the functions of the host, which a WASI program may import too: asks
// for the weather in all cities at once, for the distances of a tour one after the other,
// and orders things until the budget is spent.
//
// Input: {"cities": [text, ...], "since": integer}. Output: the weather by city, null
// where there is none; the length of the tour; and what came of the orders.
package main

import (
	"math"
	"unsafe"
)

//go:wasmimport caxton mcp_call
func hostCall(name, params string, out unsafe.Pointer, room uint32) uint64

//go:wasmimport caxton mcp_call_many
func hostCallMany(batch string, out unsafe.Pointer, room uint32) uint64

//go:wasmimport caxton take_reply
func hostTakeReply(out unsafe.Pointer, room uint32) uint32

//go:wasmimport caxton input
func hostInput(out unsafe.Pointer, room uint32) uint64

//go:wasmimport caxton output
func hostOutput(value string)

//go:wasmimport caxton log
func hostLog(level uint32, line string)

const (
	info    = 1
	warning = 2
)

// A map in the order in which it is written: keys and values in turn.
type pairs []any

// Returns a reply. The host keeps one that does not fit: make room, then fetch it.
func received(ask func(out unsafe.Pointer, room uint32) uint64) any {
	reply := make([]byte, 1024)
	size := uint32(ask(unsafe.Pointer(&reply[0]), uint32(len(reply))))
	if size > uint32(len(reply)) {
		reply = make([]byte, size)
		hostTakeReply(unsafe.Pointer(&reply[0]), size)
	}
	rest := reply[:size]
	return decoded(&rest)
}

func call(name string, params pairs) any {
	packed := string(encoded(nil, params))
	return received(func(out unsafe.Pointer, room uint32) uint64 {
		return hostCall(name, packed, out, room)
	})
}

func callMany(batch []any) []any {
	packed := string(encoded(nil, batch))
	return received(func(out unsafe.Pointer, room uint32) uint64 {
		return hostCallMany(packed, out, room)
	}).([]any)
}

func find(value any, path ...string) any {
	for _, key := range path {
		value = value.(map[string]any)[key]
	}
	return value
}

func text(value any, path ...string) string {
	return find(value, path...).(string)
}

func trip() {
	input := received(hostInput)
	cities := find(input, "cities").([]any)
	asks := []any{}
	for _, city := range cities {
		params := pairs{"location", city, "since", find(input, "since")}
		asks = append(asks, []any{"weather", params})
	}
	weather := pairs{}
	fine := []any{}
	for i, reply := range callMany(asks) {
		if text(reply, "status") != "ok" {
			hostLog(warning, text(reply, "message"))
			weather = append(weather, cities[i], nil)
			continue
		}
		seen := find(reply, "data", "structuredContent")
		hostLog(info, cities[i].(string)+": "+text(seen, "sky"))
		fine = append(fine, cities[i])
		told := pairs{"sky", find(seen, "sky"), "celsius", find(seen, "celsius")}
		weather = append(weather, cities[i], told)
	}

	km := 0.0
	avoid := []any{"tolls", nil}
	options := pairs{"avoid", avoid, "walk", false, "detour", 0.5, "altitude", int64(-200)}
	for i, start := range fine {
		end := fine[(i+1)%len(fine)]
		reply := call("mcp__maps__distance", pairs{"start", start, "end", end, "options", options})
		km += find(reply, "data", "structuredContent", "result").(float64)
	}

	orders := []any{}
	for _, order := range []pairs{
		{"item", "lamp", "count", int64(1)},
		{"item", "map", "count", int64(300)},
		{"item", "tent", "count", int64(70000)},
	} {
		orders = append(orders, []any{"mcp__shop__order", order})
	}
	statuses := []any{}
	var refused any
	for _, reply := range callMany(orders) {
		status := text(reply, "status")
		statuses = append(statuses, status)
		level := uint32(info)
		if status == "denied" {
			level, refused = warning, find(reply, "error", "code")
		}
		hostLog(level, text(reply, "message"))
	}
	hostOutput(string(encoded(nil, pairs{
		"weather", weather, "km", km, "orders", statuses, "refused", refused,
	})))
}

// Appends a value in its shortest form of msgpack.
func encoded(out []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(out, 0xc0)
	case bool:
		if value {
			return append(out, 0xc3)
		}
		return append(out, 0xc2)
	case int64:
		return integer(out, value)
	case float64:
		return tagged(out, 0xcb, math.Float64bits(value), 8)
	case string:
		out = head(out, len(value), 0xa0, 32, 0xd9)
		return append(out, value...)
	case []any:
		out = head(out, len(value), 0x90, 16, 0xdb)
		for _, item := range value {
			out = encoded(out, item)
		}
		return out
	case pairs:
		out = head(out, len(value)/2, 0x80, 16, 0xdd)
		for _, item := range value {
			out = encoded(out, item)
		}
		return out
	}
	panic("not a value")
}

func integer(out []byte, value int64) []byte {
	switch bits := uint64(value); {
	case value >= -32 && value < 128:
		return append(out, byte(value))
	case value >= 0 && value < 1<<8:
		return tagged(out, 0xcc, bits, 1)
	case value >= 0 && value < 1<<16:
		return tagged(out, 0xcd, bits, 2)
	case value >= 0 && value < 1<<32:
		return tagged(out, 0xce, bits, 4)
	case value >= 0:
		return tagged(out, 0xcf, bits, 8)
	case value >= math.MinInt8:
		return tagged(out, 0xd0, bits, 1)
	case value >= math.MinInt16:
		return tagged(out, 0xd1, bits, 2)
	case value >= math.MinInt32:
		return tagged(out, 0xd2, bits, 4)
	default:
		return tagged(out, 0xd3, bits, 8)
	}
}

// Appends a count: in the short tag, or after one of those that begin with long. That of
// one byte is for texts only.
func head(out []byte, count int, short byte, most int, long byte) []byte {
	switch {
	case count < most:
		return append(out, short|byte(count))
	case short == 0xa0 && count < 1<<8:
		return tagged(out, long, uint64(count), 1)
	case count < 1<<16:
		return tagged(out, long+1, uint64(count), 2)
	default:
		return tagged(out, long+2, uint64(count), 4)
	}
}

func tagged(out []byte, tag byte, bits uint64, width int) []byte {
	out = append(out, tag)
	for at := width - 1; at >= 0; at-- {
		out = append(out, byte(bits>>(8*at)))
	}
	return out
}

// Takes a value from the front of what the host has sent.
func decoded(rest *[]byte) any {
	tag := byte(number(rest, 1))
	width := 1 << (tag & 3)
	switch {
	case tag < 0x80 || tag >= 0xe0:
		return int64(int8(tag))
	case tag < 0x90:
		return mapping(rest, int(tag&15))
	case tag < 0xa0:
		return list(rest, int(tag&15))
	case tag < 0xc0:
		return string(taken(rest, int(tag&31)))
	case tag == 0xc0:
		return nil
	case tag <= 0xc3:
		return tag == 0xc3
	case tag == 0xca:
		return float64(math.Float32frombits(uint32(number(rest, 4))))
	case tag == 0xcb:
		return math.Float64frombits(number(rest, 8))
	case tag <= 0xcf:
		return int64(number(rest, width))
	case tag <= 0xd3:
		unused := 64 - 8*width
		return int64(number(rest, width)<<unused) >> unused
	case tag <= 0xdb:
		return string(taken(rest, int(number(rest, 1<<(tag-0xd9)))))
	case tag <= 0xdd:
		return list(rest, int(number(rest, 2<<(tag-0xdc))))
	default:
		return mapping(rest, int(number(rest, 2<<(tag-0xde))))
	}
}

func taken(rest *[]byte, size int) []byte {
	found := (*rest)[:size]
	*rest = (*rest)[size:]
	return found
}

func number(rest *[]byte, width int) uint64 {
	found := uint64(0)
	for _, one := range taken(rest, width) {
		found = found<<8 | uint64(one)
	}
	return found
}

func list(rest *[]byte, count int) []any {
	found := []any{}
	for ; count > 0; count-- {
		found = append(found, decoded(rest))
	}
	return found
}

func mapping(rest *[]byte, count int) map[string]any {
	found := map[string]any{}
	for ; count > 0; count-- {
		key := decoded(rest).(string)
		found[key] = decoded(rest)
	}
	return found
}
