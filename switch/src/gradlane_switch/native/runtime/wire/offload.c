/* SPDX-License-Identifier: Apache-2.0
 * With offloads on, hosts on the same machine send frames of up to 64 KiB that a network card would cut into packets, and
 * leave checksums to it. The switch decides packet by packet, so it does here what the card would have done. Packets that
 * came in one frame and leave side by side leave in one frame again, if each is what cutting that frame would give: so
 * nothing that a host can see depends on it, but the system's work is done once for all of them. */
#include "wire/offload.h"

#include <netinet/in.h>

#include "base/bytes.h"
#include "base/calculations.h"
#include "base/counter.h"
#include "wire/ethernet.h"

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5  /* Linux 6.2 */
#endif

enum {
    IPV4_HEADER = 20, IPV6_HEADER = 40, UDP_HEADER = 8, TCP_HEADER = 20,
    IPV4_LENGTH = 2, IPV4_ID = 4, IPV4_FLAGS = 6, IPV4_PROTOCOL = 9, IPV4_SUM = 10, IPV4_ADDRESSES = 12,
    IPV6_LENGTH = 4, IPV6_NEXT = 6, IPV6_ADDRESSES = 8,
    UDP_LENGTH = 4, UDP_SUM = 6, TCP_SEQUENCE = 4, TCP_OFFSET = 12, TCP_FLAGS = 13, TCP_SUM = 16,
    FIN = 1, PSH = 8, CWR = 128, FRAGMENT = 0x3fff,
    MOST_PARTS = 64          /* UDP_MAX_SEGMENTS of the kernels that allow the fewest */
};

static void put16(uint8_t *bytes, uint32_t value) {
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

static uint32_t get32(const uint8_t *bytes) {
    return gl_get16(bytes) << 16 | gl_get16(bytes + 2);
}

/* Where the headers of a TCP segment or UDP datagram are: offsets in bytes. */
typedef struct {
    uint32_t network, transport, end;
    int ipv6, tcp;
} gl_place;

/* The place of headers in the first `length` bytes of a frame; 0 if they are not all there. */
static int locate(const uint8_t *frame, uint32_t length, int tcp, gl_place *place) {
    uint32_t at = gl_type_at(frame, length, IPV4_HEADER);
    if (!at) {
        return 0;
    }
    uint32_t type = gl_get16(frame + at), protocol = tcp ? IPPROTO_TCP : IPPROTO_UDP, found;
    const uint8_t *network = frame + at + 2;
    *place = (gl_place){.network = at + 2, .ipv6 = type == ETH_P_IPV6, .tcp = tcp};
    if (type == ETH_P_IP && network[0] >> 4 == 4) {
        place->transport = place->network + (network[0] & 15) * 4u;
        found = network[IPV4_PROTOCOL];
    } else if (type == ETH_P_IPV6 && network[0] >> 4 == 6) {
        place->transport = place->network + IPV6_HEADER;
        found = network[IPV6_NEXT];
    } else {
        return 0;
    }
    uint32_t header = tcp ? TCP_HEADER : UDP_HEADER;
    if (found != protocol || place->transport < place->network + IPV4_HEADER || place->transport + header > length) {
        return 0;
    }
    place->end = place->transport + (tcp ? (uint32_t)(frame[place->transport + TCP_OFFSET] >> 4) * 4 : header);
    return place->end >= place->transport + header && place->end <= length && place->end <= GL_HEADERS;
}

/* The sum of a pseudo-header (RFC 768, RFC 8200) whose upper layer has `length` bytes. */
static uint64_t pseudo(const uint8_t *frame, const gl_place *place, uint32_t length) {
    uint32_t at = place->network + (place->ipv6 ? IPV6_ADDRESSES : IPV4_ADDRESSES);
    return gl_sum(frame + at, place->ipv6 ? 32 : 8, 0) + (place->tcp ? IPPROTO_TCP : IPPROTO_UDP) + length;
}

/* Where the checksum is. */
static uint32_t sum_at(const gl_place *place) {
    return place->transport + (place->tcp ? TCP_SUM : UDP_SUM);
}

/* A checksum of a sum; UDP's 0 would say that there is none. */
static uint32_t complement(uint64_t sum) {
    uint32_t folded = (uint32_t)gl_fold(sum) ^ 0xffff;
    return folded ? folded : 0xffff;
}

/* ---- Cutting ---- */

/* Writes the header of the `part`-th packet, whose length is set, over that of the whole frame. */
static void finish(gl_packet *packet, const gl_place *place, uint32_t part, uint32_t size, int last) {
    uint8_t *frame = packet->data, *network = frame + place->network, *transport = frame + place->transport;
    uint32_t length = packet->length - place->transport;
    if (place->ipv6) {
        put16(network + IPV6_LENGTH, packet->length - place->network - IPV6_HEADER);
    } else {
        put16(network + IPV4_LENGTH, packet->length - place->network);
        put16(network + IPV4_ID, gl_get16(network + IPV4_ID) + part);
        put16(network + IPV4_SUM, 0);
        put16(network + IPV4_SUM, (uint32_t)gl_fold(gl_sum(network, place->transport - place->network, 0)) ^ 0xffff);
    }
    if (place->tcp) {
        uint32_t sequence = get32(transport + TCP_SEQUENCE) + part * size;
        put16(transport + TCP_SEQUENCE, sequence >> 16);
        put16(transport + TCP_SEQUENCE + 2, sequence);
        transport[TCP_FLAGS] &= (uint8_t)~((part ? CWR : 0) | (last ? 0 : FIN | PSH));
    } else {
        put16(transport + UDP_LENGTH, length);
    }
    put16(frame + sum_at(place), 0);
    put16(frame + sum_at(place), complement(pseudo(frame, place, length) + gl_sum(transport, length, 0)));
}

/* Copies from the two pieces that a frame was received in. */
static void take(uint8_t *to, const gl_slot *slot, uint32_t room, uint32_t offset, uint32_t count) {
    uint32_t near = offset < room ? room - offset : 0;
    near = near < count ? near : count;
    memcpy(to, slot->packet->data + offset, near);
    memcpy(to + near, slot->rest + (offset + near - room), count - near);
}

/* Completes the checksum that a sender has left to hardware. */
static gl_packet *complete(gl_packet *packet, const struct virtio_net_hdr *offload, uint32_t length) {
    uint32_t start = offload->csum_start, at = start + offload->csum_offset;
    if (at + 2 > length || start > length) {
        return NULL;
    }
    put16(packet->data + at, complement(gl_sum(packet->data + start, length - start, 0)));
    packet->length = length;
    packet->next = NULL;
    return packet;
}

gl_packet *gl_offload_cut(gl_pool *pool, gl_slot *slot, uint32_t length, uint32_t room, uint32_t origin,
                          gl_counter *missing) {
    const struct virtio_net_hdr *offload = &slot->offload;
    gl_packet *head = slot->packet, *tail = head;
    uint32_t kind = offload->gso_type & ~(uint32_t)VIRTIO_NET_HDR_GSO_ECN, size = offload->gso_size;
    if (kind == VIRTIO_NET_HDR_GSO_NONE) {
        return length <= room ? complete(head, offload, length) : NULL;
    }
    gl_place place;
    int tcp = kind == VIRTIO_NET_HDR_GSO_TCPV4 || kind == VIRTIO_NET_HDR_GSO_TCPV6;
    if ((!tcp && kind != VIRTIO_NET_HDR_GSO_UDP_L4) || size == 0 ||
        !locate(head->data, length < room ? length : room, tcp, &place) || place.end >= length ||
        place.end + size > room) {
        return NULL;
    }
    uint32_t parts = (length - place.end + size - 1) / size;
    head->origin = origin;
    head->part = 0;
    head->next = NULL;
    for (uint32_t part = 1; part < parts; part++) {
        uint32_t offset = place.end + part * size, rest = length - offset;
        uint32_t own = place.end + (rest < size ? rest : size);
        gl_packet *packet = gl_pool_get(pool);
        if (!packet) {
            gl_tally(missing, own);
            continue;
        }
        memcpy(packet->data, head->data, place.end);
        packet->length = own;
        take(packet->data + place.end, slot, room, offset, packet->length - place.end);
        packet->origin = origin;
        packet->part = part;
        packet->next = NULL;
        finish(packet, &place, part, size, part == parts - 1);
        tail = tail->next = packet;
    }
    head->length = parts == 1 ? length : place.end + size;
    finish(head, &place, 0, size, parts == 1);
    return head;
}

/* ---- Joining ---- */

/* Whether what a card would compute is in the packet already, so that it may be left to a card. */
static int is_plain(const gl_packet *packet, const gl_place *place) {
    const uint8_t *network = packet->data + place->network, *transport = packet->data + place->transport;
    uint32_t length = packet->length - place->transport;
    if (place->ipv6) {
        if (gl_get16(network + IPV6_LENGTH) != packet->length - place->network - IPV6_HEADER) {
            return 0;
        }
    } else if (place->transport - place->network != IPV4_HEADER || gl_get16(network + IPV4_FLAGS) & FRAGMENT ||
               gl_get16(network + IPV4_LENGTH) != packet->length - place->network ||
               gl_fold(gl_sum(network, IPV4_HEADER, 0)) != 0xffff) {
        return 0;
    }
    if (!place->tcp && gl_get16(transport + UDP_LENGTH) != length) {
        return 0;
    }
    return packet->length > place->end && gl_get16(packet->data + sum_at(place)) != 0 &&
           gl_fold(pseudo(packet->data, place, length) + gl_sum(transport, length, 0)) == 0xffff;
}

/* Whether `packet` is what follows `first` and `before` when a card cuts a frame into payloads of `size` bytes. */
static int follows(const gl_packet *first, const gl_packet *before, const gl_packet *packet, const gl_place *place,
                   uint32_t count, uint32_t size) {
    gl_place own;
    if (packet->origin != first->origin || packet->part != before->part + 1 || before->length != place->end + size ||
        packet->length > place->end + size || !locate(packet->data, packet->length, place->tcp, &own) ||
        memcmp(&own, place, sizeof own) != 0 || !is_plain(packet, place)) {
        return 0;
    }
    uint8_t expected[GL_HEADERS];
    memcpy(expected, first->data, place->end);
    uint8_t *network = expected + place->network, *transport = expected + place->transport;
    const uint8_t *found = packet->data + place->transport;
    if (place->ipv6) {
        put16(network + IPV6_LENGTH, gl_get16(packet->data + place->network + IPV6_LENGTH));
    } else {
        put16(network + IPV4_LENGTH, packet->length - place->network);
        put16(network + IPV4_ID, gl_get16(network + IPV4_ID) + count);
        memcpy(network + IPV4_SUM, packet->data + place->network + IPV4_SUM, 2);
    }
    memcpy(expected + sum_at(place), packet->data + sum_at(place), 2);
    if (place->tcp) {
        uint32_t sequence = get32(transport + TCP_SEQUENCE) + count * size;
        put16(transport + TCP_SEQUENCE, sequence >> 16);
        put16(transport + TCP_SEQUENCE + 2, sequence);
        /* Only the last packet has what ends a push, only the first has CWR. */
        if (before->data[place->transport + TCP_FLAGS] & (FIN | PSH)) {
            return 0;
        }
        transport[TCP_FLAGS] = (uint8_t)((transport[TCP_FLAGS] & ~CWR) | (found[TCP_FLAGS] & (FIN | PSH)));
    } else {
        put16(transport + UDP_LENGTH, gl_get16(found + UDP_LENGTH));
    }
    return memcmp(expected, packet->data, place->end) == 0;
}

uint32_t gl_offload_join(gl_packet **packets, uint32_t count, struct virtio_net_hdr *offload, uint8_t *header,
                         struct iovec *vectors, uint32_t *used) {
    const gl_packet *first = packets[0];
    gl_place place;
    uint32_t joined = 1;
    *offload = (struct virtio_net_hdr){0};
    vectors[0] = (struct iovec){first->data, first->length};
    *used = 1;
    if (count == 1 || !first->origin || packets[1]->origin != first->origin ||
        !(locate(first->data, first->length, 0, &place) || locate(first->data, first->length, 1, &place)) ||
        !is_plain(first, &place)) {
        return 1;
    }
    uint32_t size = first->length - place.end, total = first->length;
    while (joined < count && joined < MOST_PARTS && total + size < GL_LONGEST - ETH_HLEN &&
           follows(first, packets[joined - 1], packets[joined], &place, joined, size)) {
        const gl_packet *packet = packets[joined++];
        vectors[joined] = (struct iovec){packet->data + place.end, packet->length - place.end};
        total += packet->length - place.end;
    }
    if (joined == 1) {
        return 1;
    }
    vectors[0] = (struct iovec){header, place.end};
    vectors[1] = (struct iovec){first->data + place.end, size};
    *used = joined + 1;
    memcpy(header, first->data, place.end);
    uint8_t *network = header + place.network, *transport = header + place.transport;
    uint32_t length = total - place.transport;
    if (place.ipv6) {
        put16(network + IPV6_LENGTH, total - place.network - IPV6_HEADER);
    } else {
        put16(network + IPV4_LENGTH, total - place.network);
        put16(network + IPV4_SUM, 0);
        put16(network + IPV4_SUM, (uint32_t)gl_fold(gl_sum(network, IPV4_HEADER, 0)) ^ 0xffff);
    }
    uint32_t kind = VIRTIO_NET_HDR_GSO_UDP_L4;
    if (place.tcp) {
        kind = place.ipv6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4;
        kind |= transport[TCP_FLAGS] & CWR ? VIRTIO_NET_HDR_GSO_ECN : 0;
        transport[TCP_FLAGS] |= packets[joined - 1]->data[place.transport + TCP_FLAGS] & (FIN | PSH);
    } else {
        put16(transport + UDP_LENGTH, length);
    }
    /* The sum of the pseudo-header, for the card to complete. */
    put16(header + sum_at(&place), (uint32_t)gl_fold(pseudo(header, &place, length)));
    *offload = (struct virtio_net_hdr){
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_type = (uint8_t)kind, .hdr_len = (uint16_t)place.end,
        .gso_size = (uint16_t)size, .csum_start = (uint16_t)place.transport,
        .csum_offset = place.tcp ? TCP_SUM : UDP_SUM,
    };
    return joined;
}
