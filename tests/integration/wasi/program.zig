// Zig's own library instead of libc: reads a file, and prints what is in it.
const std = @import("std");

pub fn main(init: std.process.Init) !void {
    const io = init.io;
    var buffer: [256]u8 = undefined;
    const data = try std.Io.Dir.cwd().readFile(io, "data/deep/a.txt", &buffer);
    std.debug.print("read {d}\n", .{data.len});
    var out: [256]u8 = undefined;
    var writer = std.Io.File.stdout().writer(io, &out);
    try writer.interface.print("{{\"data\": \"{s}\"}}", .{data});
    try writer.interface.flush();
}
