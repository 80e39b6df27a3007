"""Repeated launches; written by `generate`, which explains it. Do not edit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vkjit.runtime.array import LAYOUT_ALIGNMENT, DeviceArray

__all__ = ["MAKING", "RECORDING", "RECORDING_FEW", "WRITING"]


def _recording(prepared: Any) -> Callable[[Sequence[Any], tuple[int, ...]], bool]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    reads, writes, words_of = prepared.reads, prepared.writes, prepared.values

    def record(buffers: Sequence[Any], places: tuple[int, ...]) -> bool:
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            slot = 0 if claim is None else claim()
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            hazard = False
            for number in reads:
                buffer = buffers[number]
                if buffer.queue is not queue:
                    return False
                if buffer.write_epoch == epoch:
                    hazard = True
            for number in writes:
                buffer = buffers[number]
                if buffer.queue is not queue or buffer.readers is not None:
                    return False
                if buffer.write_epoch == epoch or buffer.read_epoch == epoch:
                    hazard = True
            if hazard:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            pack(memory, 40, command, x, *words_of(places, slot))
            serial = queue.serial
            for number in reads:
                buffer = buffers[number]
                buffer.read_epoch, buffer.last_use = epoch, serial
            for number in writes:
                buffer = buffers[number]
                buffer.write_epoch, buffer.last_use, buffer.last_write = epoch, serial, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        return True

    return record


def _recording_few(prepared: Any) -> Callable[[Sequence[Any], tuple[int, ...]], bool]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    pick, pieces = prepared.pick, prepared.pieces
    first, second, third = prepared.reads[0], prepared.reads[-1], prepared.writes[0]

    def record(buffers: Sequence[Any], places: tuple[int, ...]) -> bool:
        a, b, c = buffers[first], buffers[second], buffers[third]
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            rest = pieces if claim is None else (*pieces, claim())
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if a.queue is not queue or b.queue is not queue or c.queue is not queue or c.readers is not None:
                return False
            if a.write_epoch == epoch or b.write_epoch == epoch or c.write_epoch == epoch or c.read_epoch == epoch:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            pack(memory, 40, command, x, *pick(places + rest))
            serial = queue.serial
            a.read_epoch, a.last_use = epoch, serial
            b.read_epoch, b.last_use = epoch, serial
            c.write_epoch, c.last_use, c.last_write = epoch, serial, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        return True

    return record


def _making_1(prepared: Any) -> Callable[..., Any]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    plain, pick, pieces = prepared.plain, prepared.pick, prepared.pieces
    device, again, nbytes, dtype, layout = prepared.made
    _, form, tail, shape, strides, same = layout
    new = DeviceArray.__new__

    def make(a0: Any) -> DeviceArray | None:
        b0 = a0.buffer
        queue = current.queue
        if not queue.command_handle:  # asked before anything is allocated: those who watch the device see allocations, too
            with queue.lock:
                if not queue.open_command_handle():
                    return None
        out: Any = again(device, queue, nbytes)
        if out is None:
            out = device.allocate(nbytes)
        address = out.address
        if address % LAYOUT_ALIGNMENT:
            return None
        lock = queue.lock
        try:
            lock.acquire()
            rest = pieces if claim is None else (*pieces, claim())
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return None
            epoch = queue.epoch
            if b0.queue is not queue or out.queue is not queue or out.readers is not None:
                return None
            if b0.write_epoch == epoch or out.write_epoch == epoch or out.read_epoch == epoch:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            if plain:
                pack(memory, 40, command, x, a0.descriptor[0], address)
            else:
                pack(memory, 40, command, x, *pick((a0.descriptor[0], address) + rest))
            serial = queue.serial
            b0.read_epoch, b0.last_use = epoch, serial
            out.write_epoch, out.last_use, out.last_write = epoch, serial, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        made = new(DeviceArray)
        made.buffer, made.offset, made.dtype, made.spec_class = out, 0, dtype, form
        made.shape, made.strides, made.layout, made.descriptor = shape, strides, same, (address, *tail)
        return made

    return make


def _making_2(prepared: Any) -> Callable[..., Any]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    plain, pick, pieces = prepared.plain, prepared.pick, prepared.pieces
    device, again, nbytes, dtype, layout = prepared.made
    _, form, tail, shape, strides, same = layout
    new = DeviceArray.__new__

    def make(a0: Any, a1: Any) -> DeviceArray | None:
        b0, b1 = a0.buffer, a1.buffer
        queue = current.queue
        if not queue.command_handle:  # asked before anything is allocated: those who watch the device see allocations, too
            with queue.lock:
                if not queue.open_command_handle():
                    return None
        out: Any = again(device, queue, nbytes)
        if out is None:
            out = device.allocate(nbytes)
        address = out.address
        if address % LAYOUT_ALIGNMENT:
            return None
        lock = queue.lock
        try:
            lock.acquire()
            rest = pieces if claim is None else (*pieces, claim())
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return None
            epoch = queue.epoch
            if b0.queue is not queue or b1.queue is not queue or out.queue is not queue or out.readers is not None:
                return None
            if b0.write_epoch == epoch or b1.write_epoch == epoch or out.write_epoch == epoch or out.read_epoch == epoch:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            if plain:
                pack(memory, 40, command, x, a0.descriptor[0], a1.descriptor[0], address)
            else:
                pack(memory, 40, command, x, *pick((a0.descriptor[0], a1.descriptor[0], address) + rest))
            serial = queue.serial
            b0.read_epoch, b0.last_use = epoch, serial
            b1.read_epoch, b1.last_use = epoch, serial
            out.write_epoch, out.last_use, out.last_write = epoch, serial, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        made = new(DeviceArray)
        made.buffer, made.offset, made.dtype, made.spec_class = out, 0, dtype, form
        made.shape, made.strides, made.layout, made.descriptor = shape, strides, same, (address, *tail)
        return made

    return make


def _making_3(prepared: Any) -> Callable[..., Any]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    plain, pick, pieces = prepared.plain, prepared.pick, prepared.pieces
    device, again, nbytes, dtype, layout = prepared.made
    _, form, tail, shape, strides, same = layout
    new = DeviceArray.__new__

    def make(a0: Any, a1: Any, a2: Any) -> DeviceArray | None:
        b0, b1, b2 = a0.buffer, a1.buffer, a2.buffer
        queue = current.queue
        if not queue.command_handle:  # asked before anything is allocated: those who watch the device see allocations, too
            with queue.lock:
                if not queue.open_command_handle():
                    return None
        out: Any = again(device, queue, nbytes)
        if out is None:
            out = device.allocate(nbytes)
        address = out.address
        if address % LAYOUT_ALIGNMENT:
            return None
        lock = queue.lock
        try:
            lock.acquire()
            rest = pieces if claim is None else (*pieces, claim())
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return None
            epoch = queue.epoch
            if b0.queue is not queue or b1.queue is not queue or b2.queue is not queue or out.queue is not queue or out.readers is not None:
                return None
            if b0.write_epoch == epoch or b1.write_epoch == epoch or b2.write_epoch == epoch or out.write_epoch == epoch or out.read_epoch == epoch:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            if plain:
                pack(memory, 40, command, x, a0.descriptor[0], a1.descriptor[0], a2.descriptor[0], address)
            else:
                pack(memory, 40, command, x, *pick((a0.descriptor[0], a1.descriptor[0], a2.descriptor[0], address) + rest))
            serial = queue.serial
            b0.read_epoch, b0.last_use = epoch, serial
            b1.read_epoch, b1.last_use = epoch, serial
            b2.read_epoch, b2.last_use = epoch, serial
            out.write_epoch, out.last_use, out.last_write = epoch, serial, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        made = new(DeviceArray)
        made.buffer, made.offset, made.dtype, made.spec_class = out, 0, dtype, form
        made.shape, made.strides, made.layout, made.descriptor = shape, strides, same, (address, *tail)
        return made

    return make


def _writing_1(prepared: Any) -> Callable[..., Any]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    plain, pick, pieces = prepared.plain, prepared.pick, prepared.pieces

    def write(a0: Any) -> bool:
        b0 = a0.buffer
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            rest = pieces if claim is None else (*pieces, claim())
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or b0.readers is not None:
                return False
            if b0.write_epoch == epoch or b0.read_epoch == epoch:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            if plain:
                pack(memory, 40, command, x, a0.descriptor[0], a0.descriptor[0])
            else:
                pack(memory, 40, command, x, *pick((a0.descriptor[0],) + rest))
            serial = queue.serial
            b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        return True

    return write


def _writing_2(prepared: Any) -> Callable[..., Any]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    plain, pick, pieces = prepared.plain, prepared.pick, prepared.pieces

    def write(a0: Any, a1: Any) -> bool:
        b0, b1 = a0.buffer, a1.buffer
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            rest = pieces if claim is None else (*pieces, claim())
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or b1.queue is not queue or b0.readers is not None:
                return False
            if b0.write_epoch == epoch or b1.write_epoch == epoch or b0.read_epoch == epoch:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            if plain:
                pack(memory, 40, command, x, a0.descriptor[0], a1.descriptor[0], a0.descriptor[0])
            else:
                pack(memory, 40, command, x, *pick((a0.descriptor[0], a1.descriptor[0],) + rest))
            serial = queue.serial
            b1.read_epoch, b1.last_use = epoch, serial
            b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        return True

    return write


def _writing_3(prepared: Any) -> Callable[..., Any]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    plain, pick, pieces = prepared.plain, prepared.pick, prepared.pieces

    def write(a0: Any, a1: Any, a2: Any) -> bool:
        b0, b1, b2 = a0.buffer, a1.buffer, a2.buffer
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            rest = pieces if claim is None else (*pieces, claim())
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or b1.queue is not queue or b2.queue is not queue or b0.readers is not None:
                return False
            if b0.write_epoch == epoch or b1.write_epoch == epoch or b2.write_epoch == epoch or b0.read_epoch == epoch:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            if plain:
                pack(memory, 40, command, x, a0.descriptor[0], a1.descriptor[0], a2.descriptor[0], a0.descriptor[0])
            else:
                pack(memory, 40, command, x, *pick((a0.descriptor[0], a1.descriptor[0], a2.descriptor[0],) + rest))
            serial = queue.serial
            b1.read_epoch, b1.last_use = epoch, serial
            b2.read_epoch, b2.last_use = epoch, serial
            b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        return True

    return write


RECORDING, RECORDING_FEW = _recording, _recording_few
MAKING = {1: _making_1, 2: _making_2, 3: _making_3}
WRITING = {1: _writing_1, 2: _writing_2, 3: _writing_3}
