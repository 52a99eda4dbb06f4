-- SPDX-License-Identifier: Apache-2.0
-- Wireshark's dissector of Gradlane's datagrams: docs/wire-format.md says what the fields mean.
-- For the Lua of Wireshark 4.0 (5.2) and of later versions (5.4): neither has the other's operators on bits.

-- TABLES
local gradlane = Proto("gradlane", "Gradlane")
gradlane.prefs.workers = Pref.uint(
    "Workers of a job that switches sum", 0, "So that the numbers of its lanes can be shown; 0: unknown")

-- Fields and experts. ---------------------------------------------------------------------------------------------

local all = {}
local function field(made)
    all[#all + 1] = made
    return made
end

-- Fields of a layout, by name; those of the header have no prefix.
local function fields_of(prefix, layout)
    for _, it in ipairs(layout) do
        it.field = field(ProtoField[it.type]("gradlane." .. prefix .. it.name, it.label, it.base, it.values, it.mask))
    end
end

fields_of("", HEADER)
fields_of("report.", REPORT)
fields_of("hop.", HOP)
fields_of("sum.", SUM)

local flag_fields = {}
for place, name in ipairs(FLAGS) do
    flag_fields[place] = field(ProtoField.bool("gradlane.flags." .. name:lower(), name, 8, nil, 2 ^ (place - 1)))
end
local types, lane_types = {}, {}
for value, name in pairs(TYPES) do types[value] = name end
for value, bits in pairs(LANE_BITS) do
    lane_types[value] = "int" .. bits .. " lanes"
    types[value] = lane_types[value]
end
local type_field = field(ProtoField.uint8("gradlane.element_type.type", "Type", base.DEC, types, 0x0F))
local reduction_field = field(
    ProtoField.uint8("gradlane.element_type.reduction", "Reduction", base.DEC, REDUCTIONS, 0xF0))
local number_field = field(ProtoField.uint16("gradlane.tensor.number", "Number", base.DEC))
local partition_field = field(ProtoField.uint16("gradlane.tensor.partition", "Partition", base.DEC))
local elements_field = field(ProtoField.bytes("gradlane.elements", "Elements"))
local bitmap_field = field(ProtoField.bytes("gradlane.bitmap", "Bitmap"))
local arrived_field = field(ProtoField.uint16("gradlane.bitmap.arrived", "Slices that arrived", base.DEC))
local missing_field = field(ProtoField.uint16("gradlane.bitmap.missing", "Slices that did not", base.DEC))
local which_field = field(ProtoField.string("gradlane.bitmap.missing_slices", "Which"))
local way_fields = {}
for way = 1, WAYS do
    way_fields[way] = field(ProtoField.uint8("gradlane.report.passed." .. way, "By way " .. way, base.DEC))
end
local hop_field = field(ProtoField.none("gradlane.hop", "Hop"))
local path_field = field(ProtoField.string("gradlane.path", "Path"))
local member_field = field(ProtoField.uint8("gradlane.sum.member", "Member (rank)", base.DEC))
local lanes_field = field(ProtoField.uint16("gradlane.sum.lanes", "Lanes", base.DEC))
local lane_field = field(ProtoField.uint32("gradlane.sum.lane", "Lane", base.DEC))
local value_field = field(ProtoField.double("gradlane.sum.number", "Number"))
gradlane.fields = all

-- What is wrong has the name of the count of a receiver that refuses it.
local wrong = {}
for _, name in ipairs({ "header", "job", "length", "range", "budget", "trace", "sum" }) do
    wrong[name] = ProtoExpert.new(
        "gradlane.bad_" .. name, "Receivers refuse it", expert.group.MALFORMED, expert.severity.ERROR)
end
local trimmed = ProtoExpert.new(
    "gradlane.trimmed", "A switch has cut off the payload", expert.group.SEQUENCE, expert.severity.NOTE)
local partial = ProtoExpert.new(
    "gradlane.partial", "The capture has less of it", expert.group.UNDECODED, expert.severity.NOTE)
gradlane.experts = {
    wrong.header, wrong.job, wrong.length, wrong.range, wrong.budget, wrong.trace, wrong.sum, trimmed, partial,
}

-- Reading. --------------------------------------------------------------------------------------------------------

-- Adds a layout's fields to the tree. Returns their values, their items, and their bytes.
local function read(tree, range, layout)
    local values, items, parts = {}, {}, {}
    for _, it in ipairs(layout) do
        local part = range(it.at, it.size)
        values[it.name] = it.type:sub(1, 1) == "u" and part:bitfield(it.bit, it.bits) or part:int()
        items[it.name], parts[it.name] = tree:add(it.field, part), part
    end
    return values, items, parts
end

local function has_bit(number, bit)
    return math.floor(number / 2 ^ bit) % 2 == 1
end

local function flags_of(number)
    local set = {}
    for place, name in ipairs(FLAGS) do
        set[name] = has_bit(number, place - 1)
    end
    return set
end

-- What it adds to the info column.
local function add_bitmap(tree, range, h, final)
    local item = tree:add(bitmap_field, range)
    local arrived, gaps, first = 0, {}, nil
    local slices = math.min(h.slices, 8 * range:len())
    local function close(last)
        if first and #gaps < 32 then
            gaps[#gaps + 1] = first == last and tostring(first) or first .. "-" .. last
        elseif first and #gaps == 32 then
            gaps[33] = "..."
        end
        first = nil
    end
    local byte = 0
    for slice = 0, slices - 1 do
        if slice % 8 == 0 then byte = range(slice / 8, 1):uint() end
        if has_bit(byte, slice % 8) then
            arrived = arrived + 1
            close(slice - 1)
        elseif not first then
            first = slice
        end
    end
    close(slices - 1)
    local missing = slices - arrived
    local which = table.concat(gaps, ", ")
    item:add(arrived_field, range, arrived):set_generated()
    item:add(missing_field, range, missing):set_generated()
    if missing > 0 then item:add(which_field, range, which):set_generated() end
    local text = string.format(", %d of %s%d %s",
        arrived, slices < h.slices and "the first " or "", slices, final and "count" or "arrived")
    return missing > 0 and text .. ", missing " .. which or text
end

local function add_report(tree, range)
    local values, items, parts = read(tree, range, REPORT)
    local passed = {}
    for way = 1, WAYS do
        local number = parts.passed:bitfield((WAYS - way) * PASSED_BITS, PASSED_BITS)
        items.passed:add(way_fields[way], parts.passed, number):set_generated()
        if number > 0 then passed[#passed + 1] = way .. ":" .. number end
    end
    local text = string.format(", received %d, marked %d, share %d kbit/s, room %d bytes, clock %d us",
        values.received, values.marked, values.share, values.room, values.clock)
    if #passed > 0 then text = text .. ", ways " .. table.concat(passed, " ") end
    return values.repair == 1 and text .. ", of a REPAIR" or text
end

-- The newest record is the first; a path is told from the sender on, as `gradlane status` does.
local function add_hops(tree, range)
    local path = {}
    local count = math.floor(range:len() / HOP_BYTES)
    for place = 1, math.min(count, MAX_HOPS) do
        local part = range((place - 1) * HOP_BYTES, HOP_BYTES)
        local hop = tree:add(hop_field, part)
        local v, items = read(hop, part, HOP)
        local color = COLORS[v.color] or "unknown color"
        local depth = v.depth_unit == 0 and v.depth .. " packets" or v.depth * v.depth_unit .. " bytes"
        items.depth:append_text(" (" .. depth .. ")")
        hop:set_text(string.format("Switch %d, port %d to %d, class %d, %s, %d ns in the queue, which has %s",
            v.switch_id, v.ingress_port, v.egress_port, v.queue_class, color, v.wait, depth))
        if v.queue_class > 7 or v.color > 3 then
            hop:add_proto_expert_info(wrong.trace, "No switch writes this class or color")
        end
        table.insert(path, 1, v.switch_id .. ":" .. v.ingress_port .. "-" .. v.egress_port)
    end
    if #path == 0 then return "" end
    local text = table.concat(path, " ")
    tree:add(path_field, range, text):set_generated()
    return ", path " .. text
end

-- The lanes of a SUM. `terms`: of how many workers they are, or nil if the datagram alone does not tell.
local function add_lanes(tree, range, bits, exponent, terms)
    local size = bits / 8
    local count = math.floor(range:len() / size)
    local item = tree:add(lanes_field, range, count)
    local workers = gradlane.prefs.workers
    local zero = terms and workers > 0 and terms * math.floor((2 ^ bits - 1) / (2 * workers))
    local wanted = tree.visible or tree:referenced(lane_field) or tree:referenced(value_field)
    for lane = 0, wanted and count - 1 or -1 do
        local part = range(lane * size, size)
        local added = item:add(lane_field, part, part:uint())
        if zero then added:add(value_field, part, (part:uint() - zero) * 2 ^ exponent):set_generated() end
    end
    return count
end

local function add_sum(tree, range, h, flags, whole)
    local v, items, parts = read(tree, range(0, SUM_BYTES), SUM)
    local ranks = {}
    for rank = 0, 31 do
        if has_bit(v.members, rank) then
            ranks[#ranks + 1] = rank
            items.members:add(member_field, parts.members, rank):set_generated()
        end
    end
    -- Without members it is a worker's own; with some it may be a partial sum, or a worker's that names who may be
    -- missing.
    local terms = #ranks
    if not flags.PULL then terms = #ranks == 0 and 1 or nil end
    local bits, lanes = LANE_BITS[h.element_type % 16], range:len() - SUM_BYTES
    local text = string.format(", generation %d, members %s, slot %d, exponent %d, epoch %d",
        v.generation, #ranks > 0 and table.concat(ranks, "+") or "none", v.slot, v.exponent, v.epoch)
    if whole and (lanes == 0 or lanes % SUM_WORD ~= 0 or lanes > MAX_SUM_WORDS * SUM_WORD) then
        tree:add_proto_expert_info(wrong.sum, string.format(
            "%d bytes of lanes: there are 1 to %d words of %d bytes", lanes, MAX_SUM_WORDS, SUM_WORD))
    end
    if bits and lanes > 0 then
        local count = add_lanes(tree, range(SUM_BYTES), bits, v.exponent, terms)
        text = text .. string.format(", %d lanes of %d bits", count, bits)
    end
    return text
end

-- The header. -----------------------------------------------------------------------------------------------------

local function check(tree, h, flags)
    local kind = h.kind
    local function refuse(what, ...)
        tree:add_proto_expert_info(wrong[what], string.format(...))
    end
    if not KINDS[kind] then refuse("header", "Kind %d is not assigned", kind) end
    if h.job == 0 then refuse("job", "Jobs have numbers from 1 on") end
    if h.slices == 0 or h.slices > MAX_SLICES then
        refuse("range", "A message has 1 to %d slices, not %d", MAX_SLICES, h.slices)
    end
    if h.slice >= h.slices then refuse("range", "Slice %d is none of %d, which begin with 0", h.slice, h.slices) end
    if h.flags >= 2 ^ #FLAGS then refuse("header", "A flag is not assigned") end
    if flags.RETURNED and kind ~= KIND.TRACE then refuse("header", "RETURNED is of a TRACE alone") end
    if flags.SUM and kind ~= KIND.DATA and kind ~= KIND.REPAIR then
        refuse("header", "SUM is of a DATA or REPAIR alone")
    end
    local known = flags.SUM and lane_types or TYPES
    local elements, reduction = h.element_type % 16, math.floor(h.element_type / 16)
    if not known[elements] then refuse("header", "Elements of type %d are not assigned here", elements) end
    if not REDUCTIONS[reduction] then refuse("header", "Reduction %d is not assigned", reduction) end
    if h.way > WAYS then refuse("header", "There are ways 1 to %d, and 0, not %d", WAYS, h.way) end
    if h.budget > h.slices then
        refuse("budget", "More slices than the message has may be lost: %d of %d", h.budget, h.slices)
    end
end

-- What its kind says of `length`; nil if that is right.
local function wrong_length(h)
    local kind, length = h.kind, h.length
    if kind == KIND.PROBE and length > 0 then return "length", "A PROBE has no payload" end
    if kind == KIND.BITMAP or kind == KIND.STOP then
        local needed = math.ceil(h.slices / 8)
        if length ~= needed then
            return "length", string.format("A bitmap of %d slices has %d bytes, not %d", h.slices, needed, length)
        end
    elseif kind == KIND.REPORT and length ~= REPORT_BYTES then
        return "length", string.format("A REPORT has %d bytes, not %d", REPORT_BYTES, length)
    elseif kind == KIND.TRACE and (length % HOP_BYTES > 0 or length > MAX_HOPS * HOP_BYTES) then
        return "trace", string.format(
            "A TRACE has at most %d records of %d bytes, not %d bytes", MAX_HOPS, HOP_BYTES, length)
    end
end

local function add_details(h, items, parts)
    for _, it in ipairs(flag_fields) do items.flags:add(it, parts.flags) end
    items.element_type:add(type_field, parts.element_type)
    items.element_type:add(reduction_field, parts.element_type)
    if h.tensor < FIRST_GROUP then
        items.tensor:add(number_field, parts.tensor, math.floor(h.tensor / 16)):set_generated()
        items.tensor:add(partition_field, parts.tensor, h.tensor % 16):set_generated()
    else
        items.tensor:append_text(" (operation of a group)")
    end
end

local function told(h, flags, destination)
    local kind = KINDS[h.kind] or "kind " .. h.kind
    local tensor = h.tensor < FIRST_GROUP and "tensor " .. math.floor(h.tensor / 16) .. "." .. h.tensor % 16
        or "group operation " .. h.tensor
    local phase = flags.PULL and "pull" or "push"
    if flags.SUM then phase = flags.PULL and "result" or "contribution" end
    local text = { string.format("%s %s job %d, %d -> %s, step %d, %s, message %d",
        kind, phase, h.job, h.source, tostring(destination), h.step, tensor, h.message) }
    if h.kind == KIND.BITMAP or h.kind == KIND.STOP then
        text[#text + 1] = ", budget " .. h.budget
    else
        text[#text + 1] = string.format(", slice %d of %d, layer %d, magnitude %d, budget %d",
            h.slice, h.slices, h.layer, h.magnitude, h.budget)
    end
    if h.way > 0 then text[#text + 1] = ", way " .. h.way end
    for _, name in ipairs(FLAGS) do
        if flags[name] and name ~= "PULL" and name ~= "SUM" then text[#text + 1] = " " .. name end
    end
    return table.concat(text)
end

local function add_payload(tree, h, flags, range, sum, whole)
    local kind = h.kind
    if sum then
        if range:len() >= SUM_BYTES then return add_sum(tree, range, h, flags, whole) end
    elseif kind == KIND.BITMAP or kind == KIND.STOP then
        return add_bitmap(tree, range, h, kind == KIND.STOP)
    elseif kind == KIND.REPORT and range:len() >= REPORT_BYTES then
        return add_report(tree, range)
    elseif kind == KIND.TRACE then
        return add_hops(tree, range)
    elseif kind == KIND.DATA or kind == KIND.REPAIR then
        tree:add(elements_field, range)
    end
    return ""
end

-- One datagram at `offset`, of which `left` bytes were on the wire. Returns its bytes there, its header and its info.
local function add_datagram(tvb, pinfo, root, offset, left)
    local range = tvb(offset)
    local tree = root:add(gradlane, range)
    if left < HEADER_BYTES then
        tree:add_proto_expert_info(
            wrong.header, string.format("%d bytes are no header, which has %d", left, HEADER_BYTES))
        return left, nil, "short datagram: " .. left .. " bytes"
    elseif range:len() < HEADER_BYTES then
        tree:add_proto_expert_info(partial, "The capture has only a part of the header")
        return left, nil, "only a part of the header was captured"
    end
    local version = range:bitfield(0, HEADER[1].bits)
    if version ~= VERSION then
        tree:add(HEADER[1].field, range(0, 1))
        tree:add_proto_expert_info(wrong.header, string.format("Version %d is not known here", version))
        return left, nil, "version " .. version
    end
    local h, items, parts = read(tree, range(0, HEADER_BYTES), HEADER)
    local flags = flags_of(h.flags)
    add_details(h, items, parts)
    check(tree, h, flags)
    local text = told(h, flags, pinfo.dst)
    local bytes = HEADER_BYTES + h.length
    if h.kind == KIND.TRIMMED then
        bytes = HEADER_BYTES
        tree:add_proto_expert_info(trimmed, string.format("A switch has cut off %d bytes", h.length))
    end
    local what, why = wrong_length(h)
    if what then tree:add_proto_expert_info(wrong[what], why) end
    if bytes > left then
        tree:add_proto_expert_info(wrong.length, string.format(
            "%d bytes of payload are said to follow, and %d do", h.length, left - HEADER_BYTES))
        bytes = left
    end
    local captured = math.min(bytes, range:len())
    tree:set_len(captured)
    if captured < bytes then tree:add_proto_expert_info(partial, "The capture has only a part of the payload") end
    local sum = flags.SUM and (h.kind == KIND.DATA or h.kind == KIND.REPAIR)
    if sum and bytes < HEADER_BYTES + SUM_BYTES then
        tree:add_proto_expert_info(wrong.sum, "There is no room for the header of a sum")
    elseif captured > HEADER_BYTES then
        text = text .. add_payload(tree, h, flags, range(HEADER_BYTES, captured - HEADER_BYTES), sum, captured == bytes)
    elseif h.kind == KIND.TRACE and bytes == HEADER_BYTES then
        text = text .. ", no records"
    end
    tree:append_text(", " .. text)
    return bytes, h, text
end

-- A host hands several datagrams to its kernel as one (UDP_SEGMENT), and a capture there has them so: one behind the
-- other, of one sender.
local function follows(tvb, at, h)
    if tvb:len() - at < HEADER_BYTES then return false end
    for _, it in ipairs(HEADER) do
        local same = it.name == "version" or it.name == "job" or it.name == "token"
        if same and tvb(at + it.at, it.size):bitfield(it.bit, it.bits) ~= h[it.name] then return false end
    end
    return true
end

function gradlane.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "Gradlane"
    local on_wire, offset, count, first = tvb:reported_len(), 0, 0, nil
    repeat
        local bytes, h, text = add_datagram(tvb, pinfo, root, offset, on_wire - offset)
        offset, count, first = offset + bytes, count + 1, first or text
        local rest = on_wire - offset
        local more = h and rest > 0 and follows(tvb, offset, h)
        if rest > 0 and h and not more and tvb:len() == on_wire then
            root:add(gradlane, tvb(offset)):add_proto_expert_info(
                wrong.length, string.format("%d bytes more than the header says", rest))
        end
    until not more
    pinfo.cols.info = count > 1 and first .. "; and " .. count - 1 .. " more in one send" or first
    return tvb:len()
end

DissectorTable.get("udp.port"):add(UDP_PORT, gradlane)
